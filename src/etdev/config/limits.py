"""Constants that the config shares with the command line and the stages of a build.

This module imports nothing, so that the command line starts quickly.
"""

RESULTS = "results.json"
"""Name of the file in which a build stores the results of all targets."""
PRODUCTS = (".pte", ".ptd", ".etrecord")
"""Suffixes of the output files of a build. The file of a report must not have one of these suffixes."""
MOST_WORKERS = 1024
"""Maximum number of worker processes."""
