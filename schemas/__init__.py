"""Avro schemas and the typed rows that match them."""
