"""Descriptions of a config and of its keys: listings, schema and reference."""
