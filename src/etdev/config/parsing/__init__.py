"""Parsers of config files, which return the data and the position of every key and value."""
