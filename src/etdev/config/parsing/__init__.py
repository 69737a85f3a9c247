"""Config files as data, with the place of every key and value."""
