"""Stage *emit*: it turns the lowered model into an object program with its sidecar."""

from etdev.pipeline.objects.emit import ObjectProgram, emit_object, merge_objects
from etdev.pipeline.objects.state import find_common

__all__ = ["ObjectProgram", "emit_object", "find_common", "merge_objects"]
