"""What each entry of the table of kernel-aware lowering gains: the figures in `etdev.lowering.forms`.

For each entry one op of the size that the table names is lowered twice, as ExecuTorch does it and with that entry
alone; for `tiling`, which is there for memory, with `linear` and with both, and both files are linked. The runtime
loads both files in this process, with one thread, and calls them in turn, each first in every other pair. Prints the
median times, the median of the pairs' ratios, the planned memory, and the figures in the table; ends with 1 if an entry
gains less than half of a figure.

    python benchmarks/lowering.py [--only NAME ...] [--pairs N]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before torch is imported: on a busy machine the threads of its matrix products wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

SPARE = 4_000_000
"""Numbers that each method has room for next to its op."""

FOR_MEMORY = {"tiling": ["linear"]}
"""Entries that are measured in linked files without that room, and those that both files are lowered with."""

CALL_SECONDS = 0.02
"""A call that takes less is repeated, so that a measurement takes about this long."""


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]]:
    """By entry: a function of inputs and parameters, the inputs, the parameters."""
    import torch
    from torch.nn import functional

    flat = (torch.randn(256, 256),)
    weight, bias = torch.randn(512, 128), torch.randn(512)
    return {
        "linear": (functional.linear, (torch.randn(128, 128),), (weight, bias)),
        "addmm": (lambda x, w, b: torch.addmm(b, x, w), (torch.randn(128, 128),), (weight.t().contiguous(), bias)),
        "pow": (lambda x: x**2, flat, ()),
        "clamp": (lambda x: x.clamp(-1, 1), flat, ()),
        "gelu": (lambda x: functional.gelu(x, approximate="tanh"), flat, ()),
        "tiling": (
            lambda x, w, v: functional.linear(functional.gelu(functional.linear(x, w)), v),
            (torch.randn(256, 64),),
            (torch.randn(256, 64), torch.randn(64, 256)),
        ),
        "pooling": (lambda x: functional.max_pool2d(x, 3, 2, 1), (torch.randn(1, 64, 56, 56),), ()),
        "convolution": (
            lambda x, w: functional.conv2d(x, w, padding=1),
            (torch.randn(1, 32, 56, 56),),
            (torch.randn(64, 32, 3, 3),),
        ),
        "movement": (lambda x: x.permute(0, 2, 1, 3).contiguous(), (torch.randn(1, 128, 4, 32),), ()),
    }


def load(name: str, *, stock: bool) -> tuple[Callable[[], Any], int]:
    """A call of the entry's op, from a file in the stock runtime, and bytes of planned memory."""
    import torch
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    from etdev.linker import LinkOptions, link_foreign
    from etdev.lowering.graph import FormSettings
    from etdev.lowering.rewrite import apply_forms
    from etdev.program import write
    from etdev.program.blob import Blob
    from etdev.program.footprint import planned_memory
    from etdev.program.reader import parse

    function, inputs, parameters = cases()[name]

    class Op(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index, value in enumerate(parameters):
                self.register_parameter(f"p{index}", torch.nn.Parameter(value, requires_grad=False))

        def forward(self, x: Any) -> Any:
            result = function(x, *self.parameters())
            # No form lets a method need more memory than without it: this needs a lot, and no time.
            return result if name in FOR_MEMORY else (result, torch.empty(SPARE)[:1])

    manager = to_edge_transform_and_lower(torch.export.export(Op(), inputs))
    entries = [*FOR_MEMORY.get(name, []), *([] if stock else [name])]
    done = apply_forms(manager.exported_program("forward"), FormSettings(frozenset(entries))).counts if entries else {}
    if not stock and not done.get(name):
        raise SystemExit(f"{name}: the entry does not apply to its own case")
    buffer = manager.to_executorch().buffer
    program = parse(Blob(buffer))
    if name in FOR_MEMORY:
        program = link_foreign(program, LinkOptions()).program
        with tempfile.TemporaryDirectory() as folder:
            write(program, Path(folder) / "linked.pte")
            buffer = (Path(folder) / "linked.pte").read_bytes()
    module = _load_for_executorch_from_buffer(buffer)

    def call(_owner: bytes = buffer) -> Any:
        """The module reads the buffer, and does not own it."""
        return module.forward(inputs)

    return call, sum(planned_memory(program).values())


def measure(name: str, pairs: int) -> tuple[list[float], list[float], list[int]]:
    """Seconds of one call without the entry and with it, in alternating pairs, and the bytes of both."""
    calls, memory = zip(load(name, stock=True), load(name, stock=False), strict=True)
    repeats = [max(1, int(CALL_SECONDS / _seconds(call, 3))) for call in calls]
    found: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            found[side].append(_seconds(calls[side], repeats[side]))
    return *found, list(memory)


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def main() -> int:
    """Measure and print the entries."""
    from etdev.lowering.forms import FORMS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[form.name for form in FORMS], metavar="NAME")
    parser.add_argument("--pairs", type=int, default=21)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, one thread")
    print("| entry | measured | without | with | times faster | table | memory without | with | table |")
    print(f"|{'---|' * 9}")
    missed = []
    for form in FORMS:
        if arguments.only and form.name not in arguments.only:
            continue
        stock, own, memory = measure(form.name, arguments.pairs)
        ratio = statistics.median(first / second for first, second in zip(stock, own, strict=True))
        times = (f"{statistics.median(values) * 1e6:,.0f} µs" for values in (stock, own))
        sizes = (f"{size:,} B" if form.name in FOR_MEMORY else "" for size in memory)
        less = f"{form.less_memory:g} times less" if form.name in FOR_MEMORY else ""
        cells = [form.name, form.measured, *times, f"{ratio:.1f}", f"{form.gain:g}", *sizes, less]
        print(f"| {' | '.join(cells)} |", flush=True)
        if ratio < form.gain / 2 or memory[0] < form.less_memory / 2 * memory[1]:
            missed.append(form.name)
    if missed:
        print(f"less than half of the table's figure: {', '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
