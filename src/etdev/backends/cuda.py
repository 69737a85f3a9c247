"""Backend ``cuda``: ExecuTorch's CUDA delegate, compiled ahead of time by AOTInductor for one device.

Lowering needs a machine with CUDA and triton. Compile specs are checked on any machine. This module was written for
executorch 1.4.1 and has never been run. No machine of the project has had both CUDA and triton.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from etdev.backends.base import (
    Availability,
    CompileSpecValue,
    NoOptions,
    SpecIssue,
    encode_compile_spec,
    find_packages,
)
from etdev.config.describe.notation import literal
from etdev.config.keys import nearest

REMEDY = 'on Linux with a CUDA device and the CUDA toolkit: pip install "etdev[build]" triton'
GENERATED = "method_name"
"""Key of the compile spec that states the method's name for the compiler. etdev writes this compile spec."""

_SWITCH = ("ON", "OFF")
_CHOICES: Mapping[str, Sequence[str]] = {
    "platform": ("linux", "windows"),
    "max_autotune": _SWITCH,
    "emulate_precision_casts": _SWITCH,
    "autotune_at_compile_time": _SWITCH,
    "autotune_pointwise": _SWITCH,
    "triton_kernel_mode": _SWITCH,
    "low_memory_mode": _SWITCH,
}
"""Maps the name of each compile spec to its valid values.

The compiler ignores compile specs with other names.
"""
_PATH = "shim_library_path"


class Cuda:
    """Backend that lowers through ``CudaPartitioner``."""

    name = "cuda"
    summary = "CUDA delegate: AOTInductor's kernels for NVIDIA GPUs; never run by etdev so far"
    device_types = ("cuda",)
    delegate_ids = ("CudaBackend",)
    options = NoOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    packages = ("triton",)

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        for key, value in specs.items():
            if key == GENERATED:
                yield SpecIssue(
                    key,
                    f"the compile spec {key!r} is reserved: etdev writes it for each method",
                    "remove this compile spec",
                )
            elif key in _CHOICES:
                yield from _check_choice(key, value)
            elif key == _PATH:
                yield from _check_path(value, specs.get("platform"))
            else:
                known = (*_CHOICES, _PATH)
                near = nearest(key, known)
                hint = f"did you mean {near!r}?" if near else f"use one of: {', '.join(known)}"
                yield SpecIssue(key, f"cuda does not know the compile spec {key!r} and would ignore it", hint)

    def availability(self) -> Availability:
        found = find_packages("torch", "executorch", "triton", remedy=REMEDY)
        if found.available:
            lacking = _lacking()
            return found if lacking is None else Availability(False, lacking, REMEDY)
        return replace(found, reason=f"{found.reason}, without which ExecuTorch's CUDA backend cannot be imported")

    def partitioner(self, options: NoOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from executorch.backends.cuda.cuda_partitioner import CudaPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec

        wanted = {GENERATED: method, **specs}
        return CudaPartitioner([CompileSpec(key, encode_compile_spec(value)) for key, value in wanted.items()])


def _lacking() -> str | None:
    """Import torch, and return a text on the first requirement that this machine does not meet; None if all are met."""
    import torch

    if torch.version.cuda is None:
        return "the installed torch was built without CUDA"
    if not torch.cuda.is_available():
        return "no CUDA device is visible"
    folder = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if shutil.which("nvcc", path=None if folder is None else str(Path(folder) / "bin")) is None:
        return "CUDA's compiler 'nvcc' was not found"
    return None


def _check_choice(key: str, value: CompileSpecValue) -> Iterable[SpecIssue]:
    choices = _CHOICES[key]
    # The compiler distinguishes upper and lower case in a platform, but not in a switch.
    if isinstance(value, str) and (value.upper() if choices is _SWITCH else value) in choices:
        return
    near = nearest(value, choices) if isinstance(value, str) else None
    message = f"cuda's compile spec {key!r} is {literal(value)}; expected {' or '.join(map(literal, choices))}"
    yield SpecIssue(key, message, f"did you mean {literal(near)}?" if near else None)


def _check_path(value: CompileSpecValue, platform: CompileSpecValue | None) -> Iterable[SpecIssue]:
    if not isinstance(value, str) or not value:
        yield SpecIssue(_PATH, f"cuda's compile spec {_PATH!r} must be the path of a folder")
    elif platform != "windows":
        message = f"cuda's compile spec {_PATH!r} is for Windows only"
        yield SpecIssue(_PATH, message, 'remove this compile spec, or set "platform" to "windows"')


backend = Cuda()
