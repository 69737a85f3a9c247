"""Backend ``coreml``: Apple's Core ML, for iPhones, iPads and Macs.

Lowering works on Linux and macOS. The programs run only on Apple's systems, in a runtime that is built with this
backend. The wheel's runtime on Linux lacks the backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from pydantic import Field

from etdev.backends.base import BUILD_EXTRA, Availability, CompileSpecValue, SpecIssue, find_packages, no_compile_specs
from etdev.config.table import Table
from etdev.config.types import Many, Text
from etdev.program.sidecar.records import DelegateRecord

_UNITS = {"all": "ALL", "cpu": "CPU_ONLY", "cpu-and-gpu": "CPU_AND_GPU", "cpu-and-ne": "CPU_AND_NE"}


class CoreMLOptions(Table):
    """Options of ``executorch.backends.apple.coreml``'s partitioner and compiler."""

    compute_units: Literal["all", "cpu", "cpu-and-gpu", "cpu-and-ne"] = Field(
        "all", description="Processors that may run the delegates. `ne` is the Neural Engine."
    )
    precision: Literal["float16", "float32"] = Field("float16", description="Dtype in which float32 is computed.")
    minimum_target: Literal["iOS15", "iOS16", "iOS17", "iOS18", "macOS12", "macOS13", "macOS14", "macOS15"] | None = (
        Field(None, description="Oldest system that can run the delegates. Default: the oldest one that has the ops.")
    )
    skip_ops: Many[Text] = Field((), description="Leave out these ops, in the notation `aten.add.Tensor`.")


class CoreML:
    """Backend that lowers through ``CoreMLPartitioner``."""

    name = "coreml"
    summary = "Core ML delegate for Apple's systems; the wheel's runtime on Linux cannot run it"
    device_types = ("cpu",)
    delegate_ids = ("CoreMLBackend",)
    options = CoreMLOptions
    compute_dtype = "float16"
    dynamic_shapes = False
    packages = ("coremltools",)

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def availability(self) -> Availability:
        found = find_packages("torch", "executorch", remedy=BUILD_EXTRA)
        if not found.available:
            return found
        return find_packages("torch", "executorch", "coremltools", remedy="pip install coremltools==9.0")

    def partitioner(self, options: CoreMLOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        import coremltools
        from executorch.backends.apple.coreml.compiler import CoreMLBackend
        from executorch.backends.apple.coreml.partition import CoreMLPartitioner

        target = options.minimum_target
        compile_specs = CoreMLBackend.generate_compile_specs(
            compute_unit=coremltools.ComputeUnit[_UNITS[options.compute_units]],
            minimum_deployment_target=None if target is None else coremltools.target[target],
            compute_precision=coremltools.precision(options.precision),
        )
        return CoreMLPartitioner(skip_ops_for_coreml_delegation=list(options.skip_ops), compile_specs=compile_specs)

    def recording(self, options: Sequence[CoreMLOptions]) -> AbstractContextManager[Mapping[str, DelegateRecord]]:
        from etdev.backends.coreml.packages import reproducible

        return reproducible()


backend = CoreML()
