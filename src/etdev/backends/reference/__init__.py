"""Backend ``reference``, whose delegates contain a nested ``.pte`` as their blob.

With this backend, programs for devices can be built and run without vendor hardware. The backend is also an example for
contributors.

This module contains the code for ``validate`` and ``doctor``, and imports neither torch nor executorch.
:mod:`.partitioner` chooses the ops, and :mod:`.nested` makes the blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etdev.backends.base import (
    BUILD_EXTRA,
    Availability,
    CompileSpecValue,
    OptionIssue,
    SpecIssue,
    find_packages,
)
from etdev.backends.reference.options import ReferenceOptions
from etdev.devices import DeviceType

DELEGATE_ID = "EtdevReferenceBackend"


class Reference:
    """Backend that lowers through :class:`.partitioner.ReferencePartitioner`."""

    name = "reference"
    summary = "delegates for any device; `etdev run` and `verify` execute them, ExecuTorch's runtimes cannot"
    device_types = tuple(kind.name.lower() for kind in DeviceType)
    delegate_ids = (DELEGATE_ID,)
    options = ReferenceOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    methods_apart = True
    runs_elsewhere = "the program runs in etdev's own runtime only, with `etdev run` and `verify`"

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        for key in specs:
            message = (
                f"the backend {self.name!r} reads only the compile spec of the device, so {key!r} would have no effect"
            )
            yield SpecIssue(key, message, 'state the device with the key `device`, such as "cuda:0"')

    def check_options(self, options: ReferenceOptions) -> Iterable[OptionIssue]:
        from etdev.backends.reference.names import unknown_names

        return () if options.ops == "all" else unknown_names(options.ops)

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", remedy=BUILD_EXTRA)

    def partitioner(self, options: ReferenceOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from etdev.backends.reference.partitioner import ReferencePartitioner

        return ReferencePartitioner(options, specs)


backend = Reference()
