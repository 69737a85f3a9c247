"""Builds of all targets of a config: one after another or on workers, from the cache or by running the stages."""
