"""A pipeline of one's own around hadabeam's transforms."""
