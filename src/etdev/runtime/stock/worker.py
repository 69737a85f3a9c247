"""Process that runs ExecuTorch's Python runtime: ``python -m etdev.runtime.stock.worker READ_FD WRITE_FD``.

It answers ``hello`` (operators, backends), ``load`` and ``call``. An error of the runtime is an answer. A crash ends
the process, which the parent detects. The process ends when the parent closes its end of the pipe. All output of the
runtime goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from etdev.runtime.stock.wire import receive, send


class Worker:
    """Loaded program and its methods."""

    def __init__(self) -> None:
        self._library = _import_library()
        self._path: str | None = None
        self._data: str | None = None
        self._shared = False
        self._programs: list[Any] = []
        """Owners of the methods below. A program must outlive its methods."""
        self._methods: dict[str, Any] = {}
        self.seconds = 0.0
        """Seconds that the last call took in the runtime."""

    def hello(self, header: dict[str, Any]) -> dict[str, Any]:
        """Import the modules that register custom kernels. Return the runtime's operators and backends."""
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
        """Open a file, with its external data if it has any.

        With ``shared`` its methods use the same buffers. Otherwise each has its own, as always with external data.
        """
        self._path, self._data, self._shared = header["file"], header["data"], header["shared"]
        return {"methods": sorted(self._open())}

    def call(self, header: dict[str, Any], values: list[Any]) -> list[Any]:
        """Run a method ``repeat`` times on the same values. ``fresh`` starts from initial state."""
        if header["fresh"]:
            self._open()
        name = header["method"]
        if name not in self._methods:
            self._methods[name] = self._load_method(name)
        method = self._methods[name]
        outputs: list[Any] = []
        began = time.perf_counter()
        for _ in range(header["repeat"]):
            outputs = list(method(values))
        self.seconds = time.perf_counter() - began
        return outputs

    def _open(self) -> list[str]:
        """Reset all state and return the names of the file's methods."""
        self._methods.clear()
        self._programs.clear()
        if self._data is not None:
            return self._open_module(self._data)
        program = self._load_program()
        names = [program.get_method_name(index) for index in range(program.num_methods())]
        if self._shared:
            # Load all methods before the first call: loading a method writes the initial values of its state again.
            self._methods.update({name: program.load_method(name) for name in names})
        return names

    def _open_module(self, data: str) -> list[str]:
        """Open a file with external data, which only the module loader takes. Each method gets its own buffers."""
        module = self._library._load_for_executorch(self._path, data)
        self._programs.append(module)
        names = list(module.method_names())
        self._methods.update({name: partial(module.run_method, name) for name in names})
        return names

    def _load_method(self, name: str) -> Any:
        """Load a method. The methods of one loaded program share its buffers (seen with executorch 1.4.1)."""
        return (self._programs[0] if self._shared else self._load_program()).load_method(name)

    def _load_program(self) -> Any:
        assert self._path is not None
        program = self._library._load_program(self._path)
        self._programs.append(program)
        return program


def _import_library() -> Any:
    """Import the wheel's extension module, which ``executorch.runtime`` wraps.

    The wrapper would also import ``executorch.exir``, which takes four seconds. Only ``portable_lib`` finds OpenVINO's
    library. The quantized kernels register when their package is imported.
    """
    import torch  # noqa: F401 - the extension is linked against its libraries

    name = "portable_lib" if importlib.util.find_spec("openvino") else "_portable_lib"
    library = importlib.import_module(f"executorch.extension.pybindings.{name}")
    importlib.import_module("executorch.kernels.quantized")
    return library


def serve(reading: BinaryIO, writing: BinaryIO) -> None:
    """Answer messages until the other side closes the stream."""
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
    """Import the runtime while the parent is busy. A failure becomes the answer to the first request."""
    try:
        worker = Worker()
    except Exception as error:  # noqa: BLE001 - it is the answer
        failure = error

        def fail() -> Worker:
            raise failure

        return fail
    return lambda: worker


def main() -> None:
    """Run the child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides.
    os.dup2(2, 1)
    with os.fdopen(int(sys.argv[1]), "rb") as reading, os.fdopen(int(sys.argv[2]), "wb") as writing:
        serve(reading, writing)


if __name__ == "__main__":
    main()
