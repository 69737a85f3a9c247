"""Descriptions of a config and of its keys: listings, explanations, JSON Schema and reference."""
