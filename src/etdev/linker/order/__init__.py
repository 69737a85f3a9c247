"""Order of instructions: a pass that moves independent instructions, so that fewer bytes are in use at once."""
