"""The command line, with one file for each command, which parses arguments, calls the API and prints the result."""
