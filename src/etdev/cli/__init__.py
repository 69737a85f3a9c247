"""The command line: one file per command, each of which parses, calls, renders and returns an exit code."""
