"""What the config shares with the command line and the stages. Imports nothing, so that the command line starts
quickly."""

RESULTS = "results.json"
"""Name of the file in which a build says what became of its targets."""
PRODUCTS = (".pte", ".ptd", ".etrecord")
"""Ends of the names of what a build makes for others: a report of that name would pass for one."""
MOST_WORKERS = 1024
"""Processes that anything is spread over."""
