"""Backend ``openvino``: Intel's OpenVINO, compiled ahead of time for a device of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etdev.backends.base import (
    Availability,
    CompileSpecValue,
    NoOptions,
    SpecIssue,
    encode_compile_spec,
    find_packages,
)

EXTRA = 'pip install "etdev[openvino]"'
DEFAULT_DEVICE = "CPU"


class OpenVino:
    """Backend that lowers through ``OpenvinoPartitioner``.

    Observed with executorch 1.4.1 and 1.5.1, and openvino 2025.4:

    * The CPU plugin computes in bfloat16 on processors that support it, despite the precision of the compiled model.
    * A method with dynamic dimensions fails in ``preprocess`` of 1.4.1. Version 1.5.1 lowers such a method. But for
      inputs below the maximum sizes, the outputs have wrong sizes and values, without an error.
    * The first and the second lowering in one process produce different blobs, because blobs contain numbered names.
      Two processes produce the same blob.
    """

    name = "openvino"
    summary = "OpenVINO delegate for Intel CPUs, GPUs and NPUs; static shapes"
    device_types = ("cpu",)
    delegate_ids = ("OpenvinoBackend",)
    options = NoOptions
    compute_dtype = "bfloat16"
    dynamic_shapes = False
    packages = ("openvino", "nncf")

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        for key, value in specs.items():
            if key != "device":
                yield SpecIssue(key, f"openvino has no compile spec {key!r}", "use 'device', for example \"CPU\"")
            elif not isinstance(value, str) or not value:
                yield SpecIssue(key, "openvino's compile spec 'device' must be a name, for example \"CPU\"")

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", "openvino", "nncf", remedy=EXTRA)

    def partitioner(self, options: NoOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from executorch.backends.openvino.partitioner import OpenvinoPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec

        device = encode_compile_spec(specs.get("device", DEFAULT_DEVICE))
        return OpenvinoPartitioner([CompileSpec("device", device)])


backend = OpenVino()
