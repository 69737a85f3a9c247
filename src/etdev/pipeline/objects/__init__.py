"""Stage *emit*: the lowered model as an object program with its sidecar."""

from etdev.pipeline.objects.emit import ObjectProgram, emit_object, merge_objects

__all__ = ["ObjectProgram", "emit_object", "merge_objects"]
