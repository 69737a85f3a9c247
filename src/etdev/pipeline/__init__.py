"""The stages of a build, in order: load, export, quantize, lower, emit, link, write, verify, report.

Each stage is a function from one artifact of :mod:`etdev.pipeline.stages.artifacts` to the next.
"""
