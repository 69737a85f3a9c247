"""A backend whose delegates keep data in files of their own, as AOTInductor's do. Nothing here runs them.

The blob lists the names that it looks up, one per line. Compile specs say the files: ``blob_tag`` of the weights, and
``table_tag`` of a table, a tensor with a layout. ``forget`` leaves out of the store what the blob looks up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from etdev.backends.base import Availability, CompileSpecValue, NoOptions, SpecIssue

CODE = b"code" * 500


class BlobBackend:
    """Lowers a whole method into one delegate, for the id ``CudaBackend``."""

    name = "blob"
    summary = "data in files of its own"
    device_types = ("cuda", "cpu")
    delegate_ids = ("CudaBackend",)
    options = NoOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    methods_apart = True

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return ()

    def availability(self) -> Availability:
        return Availability(True, "for tests")

    def partitioner(self, options: NoOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any:
        from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec

        from etdev.backends.base import encode_compile_spec

        _register()
        wanted = {"method_name": method, **specs}
        encoded = [CompileSpec(key, encode_compile_spec(value)) for key, value in wanted.items()]
        return AotiPartitioner("CudaBackend", encoded)


_registered: list[type] = []


def _register() -> None:
    """Define what ExecuTorch finds by the name of its class, once."""
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

    if _registered:
        return

    class CudaBackend(BackendDetails):  # type: ignore[misc]
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> Any:
            specs = {spec.key: spec.value.decode() for spec in compile_specs}
            tensors = {name: value.detach() for name, value in edge_program.state_dict.items()}
            blob = b"".join(value.numpy().tobytes() for value in tensors.values())
            store = NamedDataStore()
            names = [
                hashlib.sha256(part).hexdigest() + end for part, end in ((CODE, "_so_blob"), (blob, "_weights_blob"))
            ]
            store.add_named_data(names[0], CODE, 1, None)
            if "forget" not in specs:
                store.add_named_data(names[1], blob, 1, specs.get("blob_tag", "aoti_cuda_blob"))
            if "table_tag" in specs:
                table = next(iter(tensors.values()))
                store.add_named_data("table", table, 1, specs["table_tag"])
            return PreprocessResult(
                "\n".join(names).encode(), debug_handle_map={}, data_store_output=store.get_named_data_store_output()
            )

    _registered.append(CudaBackend)


backend = BlobBackend()
