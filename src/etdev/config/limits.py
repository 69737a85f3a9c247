"""Constants that the config shares with the command line and the stages of a build.

This module imports nothing, so that the command line starts quickly.
"""

RESULTS = "results.json"
"""Name of the file in which a build stores the results of all targets."""
PRODUCTS = (".pte", ".ptd", ".etrecord")
"""Suffixes of the files that a build makes for its users; reports must not have these suffixes."""
MOST_WORKERS = 1024
"""Maximum number of worker processes."""
