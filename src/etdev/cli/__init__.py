"""Command line, with one file per command. A command parses arguments, calls the API and prints the result."""
