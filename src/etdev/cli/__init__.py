"""The command line. Each command has its own file, which parses arguments, calls the API and prints the result."""
