"""Backend ``portable``, which makes no delegates.

Ops that no other partitioner selects run on the runtime's own kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etdev.backends.base import (
    BUILD_EXTRA,
    Availability,
    CompileSpecValue,
    NoOptions,
    SpecIssue,
    find_packages,
    no_compile_specs,
)


class Portable:
    """Backend that leaves all ops to the runtime's kernel libraries."""

    name = "portable"
    summary = "no delegate: the runtime's own kernels"
    device_types = ("cpu",)
    delegate_ids: tuple[str, ...] = ()
    options = NoOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    methods_apart = True

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", remedy=BUILD_EXTRA)

    def partitioner(self, options: NoOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        return None


backend = Portable()
