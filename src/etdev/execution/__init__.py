"""The commands `etdev run` and `etdev bench`: they call the methods of built programs."""
