"""Builds of whole configs: targets, in turn or on workers, from the cache or from the stages."""
