"""Stages of a build. Each is a function from one artifact of :mod:`etdev.pipeline.stages.artifacts` to the next."""
