"""Reading of config files as data, with the position of every key and value."""
