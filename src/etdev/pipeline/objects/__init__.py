"""Stage *emit*: the lowered model as an object program with its sidecar."""

from etdev.pipeline.objects.emit import ObjectProgram, Origin, emit_object, object_place, sidecar_place

__all__ = ["ObjectProgram", "Origin", "emit_object", "object_place", "sidecar_place"]
