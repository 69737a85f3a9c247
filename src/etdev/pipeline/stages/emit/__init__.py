"""Stage *emit*: turns the lowered model into an object program with its sidecar."""

from etdev.pipeline.stages.emit.emission import (
    ObjectProgram,
    emit_object,
    emit_trial,
    merge_objects,
    read_object,
)
from etdev.pipeline.stages.emit.mutable_state import find_common

__all__ = ["ObjectProgram", "emit_object", "emit_trial", "find_common", "merge_objects", "read_object"]
