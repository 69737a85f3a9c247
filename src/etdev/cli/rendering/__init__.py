"""Text for people: results, progress and the live display."""
