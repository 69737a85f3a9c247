"""Stage *emit*: turns the lowered model into an object program with its sidecar."""

from etdev.pipeline.stages.emit.emission import ObjectProgram, emit_object, merge_objects
from etdev.pipeline.stages.emit.mutable_state import find_common

__all__ = ["ObjectProgram", "emit_object", "find_common", "merge_objects"]
