"""Backends that compute ``x * w + b`` with weights in files of their own, and run in the native runtime.

``TaggedScale`` tags each weight for a file: ``scale_w.ptd`` and ``scale_b.ptd``. ``ForcedScale`` does as AOTInductor's
backends do: its weights are always outside, all of them in ``forced_scale_blob.ptd``, and other data is in the program.
The C++ code is in ``scale/``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from etdev.backends.base import Availability, CompileSpecValue, NoOptions, SpecIssue
from etdev.runtime.native.toolchain import Toolchain

FOLDER_VARIABLE = "ETDEV_TEST_SCALE_LIBRARIES"
"""Environment variable with the folder of the compiled libraries."""


class ScaleBackend:
    """Lowers a whole method ``x * w + b`` into one delegate."""

    device_types = ("cpu",)
    options = NoOptions
    compute_dtype = "float32"
    dynamic_shapes = False

    def __init__(self, name: str, delegate: str) -> None:
        self.name, self.summary, self.delegate_ids = name, "x * w + b", (delegate,)

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return ()

    def availability(self) -> Availability:
        return Availability(True, "for tests")

    def partitioner(self, options: NoOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any:
        from executorch.backends.aoti.aoti_partitioner import AotiPartitioner

        _register()
        return AotiPartitioner(self.delegate_ids[0], [])


tagged = ScaleBackend("tagged", "TaggedScale")
forced = ScaleBackend("forced", "ForcedScale")


def tagged_library() -> Path:
    """The entry point of ``TaggedScale``: the package knows where its library is."""
    return Path(os.environ[FOLDER_VARIABLE], "libtagged.so")


def forced_library() -> str:
    """The entry point of ``ForcedScale``, as text."""
    return os.path.join(os.environ[FOLDER_VARIABLE], "libforced.so")


POINTS = {
    "etdev.backends": {"tagged": "support.scale_backends:tagged", "forced": "support.scale_backends:forced"},
    "etdev.native_libraries": {
        "TaggedScale": "support.scale_backends:tagged_library",
        "ForcedScale": "support.scale_backends:forced_library",
    },
}
"""Entry points of both backends."""


def compile_libraries(tools: Toolchain, folder: Path, sources: Path | None = None) -> None:
    """Compile all libraries of a CMake project, by default ``scale/``, against ExecuTorch's package into ``folder``."""
    sources = sources or Path(__file__).with_name("scale")
    configure = ["-S", sources, "-B", folder, f"-DCMAKE_PREFIX_PATH={tools.package}"]
    configure += [f"-DCMAKE_CXX_COMPILER={tools.compiler}", "-DCMAKE_BUILD_TYPE=None"]
    if tools.ninja is not None:
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
    for arguments in (configure, ["--build", folder, "--parallel", "2"]):
        done = subprocess.run([tools.cmake, *arguments], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


_registered: list[type] = []


def _register() -> None:
    """Define what ExecuTorch finds by the names of its classes, once."""
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

    if _registered:
        return

    def weights(program: Any) -> list[Any]:
        return [program.state_dict[name].detach() for name in ("w", "b")]

    class TaggedScale(BackendDetails):  # type: ignore[misc]
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> Any:
            store, lines = NamedDataStore(), []
            for key, value in zip(("scale.w", "scale.b"), weights(edge_program), strict=True):
                store.add_named_data(key, value, external_tag=f"scale_{key[-1]}")
                lines.append(f"{key} 0 {value.numel()}\n")
            output = store.get_named_data_store_output()
            return PreprocessResult("".join(lines).encode(), debug_handle_map={}, data_store_output=output)

    class ForcedScale(BackendDetails):  # type: ignore[misc]
        @classmethod
        def save_data_externally(cls) -> bool:
            return True

        @classmethod
        def preprocess(cls, edge_program: Any, compile_specs: Any) -> Any:
            w, b = weights(edge_program)
            data = w.numpy().tobytes() + b.numpy().tobytes()
            key = hashlib.sha256(data).hexdigest() + "_weights_blob"
            store = NamedDataStore()
            tag = "forced_scale_blob" if cls.save_data_externally() else None
            store.add_named_data(key, data, external_tag=tag)
            lines = f"{key} 0 {w.numel()}\n{key} {w.nbytes} {b.numel()}\n".encode()
            store.add_named_data("forced.lines", lines)
            output = store.get_named_data_store_output()
            return PreprocessResult(b"at forced.lines", debug_handle_map={}, data_store_output=output)

    _registered.extend([TaggedScale, ForcedScale])
