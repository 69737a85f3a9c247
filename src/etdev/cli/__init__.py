"""Command line: one file per command. Each parses, calls, renders and returns an exit code."""
