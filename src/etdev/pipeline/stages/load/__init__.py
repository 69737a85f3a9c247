"""Stage *load*: the model of a config, from Python code, a checkpoint or a saved program."""
