"""The stages of a build: functions that take one artifact and return the next.

The artifacts are those of :mod:`etdev.pipeline.stages.artifacts`.
"""
