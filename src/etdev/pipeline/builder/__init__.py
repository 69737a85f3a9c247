"""Builds all targets of a config: restores finished targets from the cache, and builds the others."""
