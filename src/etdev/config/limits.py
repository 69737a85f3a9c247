"""Limits that the config and the command line share. Imports nothing, so that the command line starts quickly."""

MOST_WORKERS = 1024
"""Processes that anything is spread over."""
