"""Lowering to Ethos-U: compile specs, and a record of each delegate that Vela compiles."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev import tosa_tools
from etdev.backends.ethos_u import vela
from etdev.errors import LowerError
from etdev.program.sidecar.records import DelegateRecord

if TYPE_CHECKING:
    from etdev.backends.ethos_u.options import EthosUOptions

_CONFIG = "--config="
_AREAS = ("sram", "dram", "on_chip_flash", "off_chip_flash")
"""Kinds of memory. Vela's summary states how many KiB of each kind a delegate uses."""


def compile_spec(options: EthosUOptions) -> Any:
    """Return ExecuTorch's compile spec. It contains no path, because compile specs become part of the program."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    return EthosUCompileSpec(
        options.target,
        system_config=options.system_config,
        memory_mode=options.memory_mode,
        extra_flags=list(options.extra_flags),
        config_ini=vela.config_name(options.config),
    )


@contextmanager
def recorded(options: Sequence[EthosUOptions]) -> Iterator[Mapping[str, DelegateRecord]]:
    """Record each delegate that is compiled in the block.

    ExecuTorch can write the TOSA graph of a delegate only to a folder. The folder's path then becomes part of the
    program. So this function replaces two of ExecuTorch's functions in the block: ``preprocess`` and ``vela_compile``.
    """
    with tosa_tools.importable():
        from executorch.backends.arm.ethosu import backend as module
    configs = _configs(options)
    records: dict[str, DelegateRecord] = {}
    compiled: list[tuple[bytes, dict[str, int]]] = []
    preprocess, vela_compile = module.EthosUBackend.preprocess, module.vela_compile

    def call_vela(graph: bytes, flags: list[str], **settings: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            settings["intermediate_path"] = folder
            result = _run(lambda: vela_compile(graph, _with_file(flags, configs, Path(folder)), **settings))
            compiled.append((graph, _memory(Path(folder, "output"))))
        return result

    def record(edge_program: Any, compile_specs: Any) -> Any:
        reference = _reference(edge_program)
        result = preprocess(edge_program, compile_specs)
        graph, memory = compiled.pop()
        digest = hashlib.sha256(result.processed_bytes).hexdigest()
        records[digest] = DelegateRecord(memory, graph, reference)
        return result

    module.EthosUBackend.preprocess, module.vela_compile = staticmethod(record), call_vela
    try:
        yield records
    finally:
        module.EthosUBackend.preprocess, module.vela_compile = staticmethod(preprocess), vela_compile


def compile_again(graph: bytes, flags: str, options: Sequence[EthosUOptions]) -> bytes:
    """Compile a TOSA graph with the flags of a delegate's compile specs, and return the blob.

    Raises :class:`~etdev.errors.LowerError` if Vela refuses the graph.
    """
    with tosa_tools.importable():
        from executorch.backends.arm.arm_vela import vela_compile
    configs = _configs(options)
    with tempfile.TemporaryDirectory() as folder:
        found: bytes = _run(
            lambda: vela_compile(graph, _with_file(flags.split(" "), configs, Path(folder)), intermediate_path=folder)
        ).processed_bytes
    return found


def _configs(options: Sequence[EthosUOptions]) -> dict[str, Path]:
    """Map the name that the flags contain for each Vela config file to the file's path in ``options``."""
    return {vela.config_name(item.config): Path(item.config) for item in options if item.config is not None}


def _with_file(flags: Sequence[str], configs: Mapping[str, Path], folder: Path) -> list[str]:
    """Copy the config files to ``folder``, and replace their names in the flags by the paths of the copies.

    The user's path may contain spaces, at which ExecuTorch would split the flags.
    """
    for name, path in configs.items():
        shutil.copyfile(path, folder / name)
    given = {f"{_CONFIG}{name}": f"{_CONFIG}{folder / name}" for name in configs}
    return [given.get(flag, flag) for flag in flags]


def _run(call: Callable[[], Any]) -> Any:
    """Call Vela and hide its output. Raise :class:`LowerError` if Vela fails or tries to end the process."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return call()
    except (SystemExit, Exception) as error:  # noqa: BLE001 - Vela raises many kinds of errors
        lines = [line for line in printed.getvalue().splitlines() if line.strip()]
        cause = lines[-1] if lines else f"{type(error).__name__}: {error}"
        raise LowerError(
            f"Vela cannot compile a delegate: {cause}",
            hint="check the options of the partitioner 'ethos-u'; with -v, the trace shows Vela's own error",
        ) from (error if isinstance(error, Exception) else None)


def _memory(folder: Path) -> dict[str, int]:
    """Read the memory that a delegate needs, in bytes, from the files that Vela wrote."""
    import numpy as np

    (archive,) = folder.glob("*_vela.npz")
    with np.load(archive, allow_pickle=False) as data:
        found = {"scratch": int(data["scratch_size"]), "fast_scratch": int(data["scratch_fast_size"])}
    (summary,) = folder.glob("*_summary_*.csv")
    with summary.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    return found | {area: round(float(row[f"{area}_memory_used"]) * 1024) for area in _AREAS}


def _reference(edge_program: Any) -> bytes:
    """Return the bytes of a program that computes a delegate's ops with kernels; ``b""`` if an op has no kernel."""
    import executorch.kernels.quantized  # noqa: F401 - registers the out variants of quantized_decomposed

    from etdev.backends.reference.nested import EtdevReferenceBackend

    try:
        content: bytes = EtdevReferenceBackend.preprocess(copy.deepcopy(edge_program), []).processed_bytes
    except Exception:  # noqa: BLE001 - emission raises many kinds of errors, and the check `tosa` says what is missing
        return b""
    return content
