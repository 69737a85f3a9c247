"""Reading, merging and checking config files. Imports no torch, no executorch and no numpy."""
