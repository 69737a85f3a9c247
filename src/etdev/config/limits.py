"""Constants that the config shares with the command line and the stages of a build.

This module imports nothing, so that the command line starts quickly.
"""

RESULTS = "results.json"
"""Name of the file in which a build states the result of each target."""
PRODUCTS = (".pte", ".ptd", ".etrecord")
"""Suffixes of the files that a build makes for its users. No report may have one of them."""
MOST_WORKERS = 1024
"""Largest number of worker processes."""
