"""Program of the stock runtime's process: ``python -m etdev.runtime.stock.worker READ_FD WRITE_FD``.

The process answers the requests ``hello``, ``load`` and ``call``. If the runtime raises an error, the answer is that
error. If the runtime crashes, this process ends, and the parent notices the end. When the parent closes the pipe, this
process ends. Everything that the runtime prints goes to stderr.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from etdev import compat
from etdev.runtime.stock.wire import receive, send


class Worker:
    """ExecuTorch's runtime with one loaded program."""

    def __init__(self) -> None:
        self._library = _import_library()
        self._path: str | None = None
        self._data: str | None = None
        self._shared = False
        self._programs: list[Any] = []
        """Loaded programs. A program must exist while one of its methods exists."""
        self._methods: dict[str, Any] = {}
        self.seconds = 0.0
        """Seconds that the last call spent in the runtime."""

    def hello(self, header: dict[str, Any]) -> dict[str, Any]:
        """Import modules that register custom kernels. Return the names of the runtime's operators and backends."""
        sys.path[:0] = header["path"]
        for name in header["imports"]:
            importlib.import_module(name)
        backends = self._library._get_registered_backend_names()
        return {
            "operators": sorted(self._library._get_operator_names()),
            "backends": sorted(backends),
            "usable": sorted(name for name in backends if self._library._is_available(name)),
        }

    def load(self, header: dict[str, Any]) -> dict[str, Any]:
        """Open a program, and its data file if there is one; return the names of the methods.

        With ``shared`` and without a data file, all methods use the same buffers. Otherwise each method has its own
        buffers.
        """
        self._path, self._data, self._shared = header["file"], header["data"], header["shared"]
        return {"methods": sorted(self._open())}

    def call(self, header: dict[str, Any], values: list[Any]) -> list[Any]:
        """Call a method ``repeat`` times with the same inputs. ``fresh`` resets all state first."""
        if header["fresh"]:
            self._open()
        name = header["method"]
        if name not in self._methods:
            self._methods[name] = self._load_method(name)
        method = self._methods[name]
        shared = self._shared_inputs(name, values) if header["repeat"] > 1 else []
        outputs: list[Any] = []
        self.seconds = 0.0
        for _ in range(header["repeat"]):
            for value, content in shared:
                value.copy_(content)
            began = time.perf_counter()
            outputs = list(method(values))
            self.seconds += time.perf_counter() - began
        return outputs

    def _shared_inputs(self, name: str, values: list[Any]) -> list[tuple[Any, Any]]:
        """Return each input tensor that the method may overwrite, with a copy of the tensor's content.

        These inputs have no planned memory, so the method uses the tensors' memory directly.
        """
        meta = self._programs[-1].method_meta(name) if self._data is not None else self._methods[name].method_meta()
        return [
            (value, value.clone())
            for position, value in enumerate(values[: meta.num_inputs()])
            if hasattr(value, "data_ptr") and not meta.input_tensor_meta(position).is_memory_planned()
        ]

    def threads(self, header: dict[str, Any]) -> dict[str, Any]:
        """Set the number of threads of the runtime's pool to ``count``, unless it is None; return the number."""
        if header["count"] is not None:
            self._library._unsafe_reset_threadpool(header["count"])
        return {"threads": self._library._threadpool_get_thread_count()}

    def _open(self) -> list[str]:
        """Open the file again, which resets all state. Return the names of its methods."""
        self._methods.clear()
        self._programs.clear()
        if self._data is not None:
            return self._open_module(self._data)
        program = self._load_program()
        names = [program.get_method_name(index) for index in range(program.num_methods())]
        if self._shared:
            # Load all methods before the first call, because loading a method initializes its state again.
            self._methods.update({name: program.load_method(name) for name in names})
        return names

    def _open_module(self, data: str) -> list[str]:
        """Open a program with a data file. With this loader of ExecuTorch, each method has its own buffers."""
        module = self._library._load_for_executorch(self._path, data)
        self._programs.append(module)
        names = list(module.method_names())
        self._methods.update({name: partial(module.run_method, name) for name in names})
        return names

    def _load_method(self, name: str) -> Any:
        """Load a method; open the program again if buffers are not shared.

        Methods of one loaded program share its buffers, as seen with executorch 1.4.1 and 1.5.1.
        """
        return (self._programs[0] if self._shared else self._load_program()).load_method(name)

    def _load_program(self) -> Any:
        assert self._path is not None
        program = self._library._load_program(self._path)
        self._programs.append(program)
        return program


def _import_library() -> Any:
    """Import the extension module of the runtime directly, because ``executorch.runtime`` takes four seconds longer.

    Importing ``executorch.kernels.quantized`` registers the quantized kernels.
    """
    import torch  # noqa: F401 - the extension is linked against its libraries

    library = importlib.import_module(compat.runtime_module())
    importlib.import_module("executorch.kernels.quantized")
    return library


def serve(reading: BinaryIO, writing: BinaryIO) -> None:
    """Answer requests until the parent closes the stream."""
    start = _start()
    while True:
        try:
            header, values = receive(reading)
        except EOFError:
            return
        try:
            worker = start()
            outputs: list[Any] = []
            answer: dict[str, Any] = {}
            match header["ask"]:
                case "call":
                    outputs = worker.call(header, values)
                    answer = {"seconds": worker.seconds}
                case ask:
                    answer = getattr(worker, ask)(header)
        except Exception as error:  # noqa: BLE001 - it is the answer
            send(writing, {"error": f"{type(error).__name__}: {error}"})
        else:
            send(writing, answer, outputs)


def _start() -> Callable[[], Worker]:
    """Import the runtime now, while the parent works; return a function that returns the worker.

    If the import fails, the returned function raises the error, and the process answers each request with this error.
    """
    try:
        worker = Worker()
    except Exception as error:  # noqa: BLE001 - it is the answer
        failure = error

        def fail() -> Worker:
            raise failure

        return fail
    return lambda: worker


def main() -> None:
    """Run the process of the stock runtime."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes. The parent decides when this one ends.
    os.dup2(2, 1)
    with os.fdopen(int(sys.argv[1]), "rb") as reading, os.fdopen(int(sys.argv[2]), "wb") as writing:
        serve(reading, writing)


if __name__ == "__main__":
    main()
