"""Beam transforms over batches of records."""
