"""Memory of programs of many architectures: plain ExecuTorch, etdev's build, and the plain file linked again.

Each model (zoo_project/model.py) is exported and lowered twice: by hand, as ExecuTorch's documentation does it, and by
`etdev.build`. All three files then run in the stock runtime on the same random inputs, and their outputs have to be
equal bit by bit. Ends with 1 if outputs differ or if etdev's memory is above that of ExecuTorch's greedy planner.

    python benchmarks/zoo.py [--models NAME ...] [--backends NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo_project.model import ARCHITECTURES, Architecture, Input, make

PROJECT = Path(__file__).parent / "zoo_project"
BACKENDS = ("portable", "xnnpack")
CALLS = 2
"""Random inputs that each file is run on."""


@dataclass(frozen=True)
class Row:
    """What was found of one model on one backend. Memory in bytes, the sum of all planned buffers."""

    model: str
    backend: str
    stock_instructions: int | None = None
    instructions: int | None = None
    greedy: int | None = None
    """Of the file that plain ExecuTorch makes."""
    lower_bound: int | None = None
    """That no plan of the tensors in etdev's file goes below."""
    memory: int | None = None
    """Of etdev's file."""
    relinked: int | None = None
    """Of the plain file after `etdev relink`."""
    identical: bool | None = None
    """Whether etdev's file gives the outputs of the plain one, bit by bit."""
    relinked_identical: bool | None = None
    overlap: str | None = None
    """How the plain file overwrites values that it still reads, if it does: its memory is no plan to compare with."""
    trouble: str | None = None
    """Why there is no figure."""
    stock_fails: bool = False
    """Whether it is plain ExecuTorch that has the trouble."""

    @property
    def violations(self) -> tuple[str, ...]:
        """What must not be."""
        if self.trouble is not None:
            return () if self.stock_fails else (self.trouble,)
        if self.overlap is not None:
            return ()
        assert self.greedy is not None
        found = []
        for name, memory, identical in (
            ("etdev", self.memory, self.identical),
            ("relinked", self.relinked, self.relinked_identical),
        ):
            if memory is None or memory > self.greedy:
                found.append(f"{name}: {memory} B, greedy: {self.greedy} B")
            if not identical:
                found.append(f"{name}: other outputs than the plain file's")
        return tuple(found)


def by_hand(architecture: str, backend: str, path: Path) -> None:
    """Export, lower, emit and write as ExecuTorch's documentation does it."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = torch.export.export(make(architecture), random_inputs(ARCHITECTURES[architecture], 0))
    partitioner = [XnnpackPartitioner()] if backend == "xnnpack" else []
    emitted = to_edge_transform_and_lower(program, partitioner=partitioner).to_executorch()
    with path.open("wb") as file:
        emitted.write_to_file(file)


def by_etdev(name: str, backend: str, out: Path) -> tuple[Path, int]:
    """The same through the Python API; the file, and the lower bound of its memory."""
    import etdev

    architecture = ARCHITECTURES[name]
    overrides = [
        f"project.out={json.dumps(str(out))}",
        f"model.kwargs={{ name = {json.dumps(name)} }}",
        f"methods.forward.inputs=[{', '.join(map(_declaration, architecture.inputs))}]",
    ]
    result = etdev.build(PROJECT / "etdev.toml", targets=[backend], verify=False, overrides=overrides, environ={})
    bound = sum(buffer.lower_bound for method in result[backend].methods for buffer in method.buffers)
    return result.path(backend), bound


def _declaration(item: Input) -> str:
    dtype = "float32" if item.below is None else "int64"
    return f'{{ name = "{item.name}", dtype = "{dtype}", shape = {list(item.shape)} }}'


def random_inputs(architecture: Architecture, seed: int) -> tuple[Any, ...]:
    """One set of inputs: standard normal numbers, or words of the vocabulary."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(item.shape, generator=generator)
        if item.below is None
        else torch.randint(item.below, item.shape, generator=generator)
        for item in architecture.inputs
    )


def outputs(runtime: Any, path: Path, architecture: Architecture) -> list[tuple[Any, ...]]:
    """What the file computes in the stock runtime, in a form whose equality is that of the bits."""
    runtime.load(path)
    found = []
    for seed in range(CALLS):
        values = runtime.call("forward", random_inputs(architecture, seed))
        found.extend((value.dtype, tuple(value.shape), value.contiguous().numpy().tobytes()) for value in values)
    return found


def examine(name: str, backend: str, runtime: Any, folder: Path) -> Row:
    """Make the three files in an empty folder, and compare them."""
    from etdev.errors import EtdevError, ProgramError
    from etdev.pipeline.relink import relink
    from etdev.program import read

    plain, relinked = folder / "plain.pte", folder / "relinked.pte"
    try:
        by_hand(name, backend, plain)
    except Exception as error:  # noqa: BLE001 - it is what the table says
        return Row(name, backend, trouble=f"plain ExecuTorch: {_one_line(error)}", stock_fails=True)
    try:
        built, bound = by_etdev(name, backend, folder / "etdev")
    except EtdevError as error:
        return Row(name, backend, trouble=_one_line(error))
    found: dict[str, Any] = {"stock_instructions": _instructions(read(plain)), "greedy": _memory(read(plain))}
    found |= {"instructions": _instructions(read(built)), "memory": _memory(read(built)), "lower_bound": bound}
    architecture = ARCHITECTURES[name]
    expected = outputs(runtime, plain, architecture)
    found["identical"] = outputs(runtime, built, architecture) == expected
    try:
        relink(plain, relinked)
    except ProgramError as error:
        return Row(name, backend, **found, overlap=_one_line(error))
    found |= {"relinked": _memory(read(relinked))}
    found["relinked_identical"] = outputs(runtime, relinked, architecture) == expected
    return Row(name, backend, **found)


def _instructions(program: Any) -> int:
    return sum(len(chain.instructions) for plan in program.execution_plan for chain in plan.chains)


def _memory(program: Any) -> int:
    from etdev.program.footprint import planned_memory

    return planned_memory(program)["cpu"]


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).replace("|", "/")
    return f"{type(error).__name__}: {text[:150]}"


COLUMNS = (
    "model",
    "backend",
    "instructions",
    "etdev's",
    "greedy, B",
    "lower bound, B",
    "etdev, B",
    "ratio",
    "optimal",
    "relinked, B",
    "etdev's outputs",
    "relinked's outputs",
)


def as_cells(row: Row) -> list[str]:
    """A row of the table, one text per column."""
    if row.trouble is not None:
        return [row.model, row.backend, row.trouble]
    assert row.greedy is not None
    assert row.memory is not None
    assert row.lower_bound is not None
    return [
        row.model,
        row.backend,
        f"{row.stock_instructions:,}",
        f"{row.instructions:,}",
        f"{row.greedy:,}" if row.overlap is None else "overwrites live values",
        f"{row.lower_bound:,}",
        f"{row.memory:,}",
        f"{row.memory / row.greedy:.2f}" if row.overlap is None else "",
        "yes" if row.memory == row.lower_bound else "no",
        "refused" if row.relinked is None else f"{row.relinked:,}",
        _verdict(row.identical),
        _verdict(row.relinked_identical),
    ]


def _verdict(identical: bool | None) -> str:
    return {None: "", True: "identical", False: "DIFFERENT"}[identical]


def _print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> int:
    """Print the table as it grows; say what must not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    arguments = parser.parse_args()

    from etdev.pipeline.noise import quiet_libraries
    from etdev.runtime.stock import StockRuntime

    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {_versions()}\n")
    _print_row(COLUMNS)
    _print_row(["---"] * len(COLUMNS))
    rows = []
    with StockRuntime() as runtime:
        for name in arguments.models:
            for backend in arguments.backends:
                with tempfile.TemporaryDirectory() as folder, quiet_libraries():
                    rows.append(examine(name, backend, runtime, Path(folder)))
                _print_row(as_cells(rows[-1]))
    print(f"\n{_summary(rows)}")
    if arguments.json:
        content = [asdict(row) | {"violations": row.violations} for row in rows]
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    for row in rows:
        for violation in row.violations:
            print(f"{row.model}, {row.backend}: {violation}", file=sys.stderr)
    return 1 if any(row.violations for row in rows) else 0


def _versions() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("executorch", "torch", "transformers"))


def _summary(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if row.trouble is None]
    smaller = sum(row.memory < row.greedy for row in compared)  # type: ignore[operator]
    optimal = sum(row.memory == row.lower_bound for row in compared)
    return f"{len(compared)} of {len(rows)} compared: {smaller} smaller than greedy, {optimal} at the lower bound."


if __name__ == "__main__":
    sys.exit(main())
