"""Cost of reading, writing and relinking files, against a plain copy of the same file.

The large file holds one constant of `--mebibytes`; the other one has about 1,000 instructions. Times are medians of
alternating pairs on warm files, written anew each time. A plain copy reads and writes pieces of 8 MiB in Python.
Nothing but `etdev relink` forces its file to the disk. Ends with 1 if a limit is passed.

    python benchmarks/files.py [--mebibytes N] [--pairs N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PIECE = 8 << 20
_LAYERS = 100
"""Of the file with many instructions; each layer has ten."""
_SAMPLE = 0.002
"""Seconds between two looks at a process's memory."""
_KINDS = {"anonymous": "RssAnon", "resident": "VmHWM"}
"""Kinds of memory, and their names in a process's status."""
_READ_WRITE = """
import sys
from pathlib import Path
from etdev.program import read
from etdev.program.writer import write_into
write_into(read(sys.argv[1]), Path(sys.argv[2]))
"""


@dataclass(frozen=True)
class Finding:
    """A measured figure and its limit, in the same unit."""

    what: str
    measured: str
    limit: str
    holds: bool


def make_large(path: Path, size: int) -> None:
    """A program whose only constant takes ``size`` bytes."""
    import torch
    from torch import nn

    width = 256
    table = torch.arange(size // 4 // width, dtype=torch.float32)[:, None].repeat(1, width)
    _save(nn.Embedding.from_pretrained(table), torch.tensor([[1, 2]]), path)


def make_long(path: Path) -> None:
    """A program of some 1,000 instructions, attention among them."""
    import torch
    from torch import Tensor, nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.value = nn.Linear(32, 32), nn.Linear(32, 32)
            self.norm = nn.LayerNorm(32)

        def forward(self, x: Tensor) -> Tensor:
            query, value = self.query(x).view(1, 16, 2, 16), self.value(x).view(1, 16, 2, 16)
            mixed = torch.softmax(query * 0.5, -1) * value
            return self.norm(x + mixed.reshape(1, 16, 32)).relu()

    torch.manual_seed(0)
    _save(nn.Sequential(*(Layer() for _ in range(_LAYERS))), torch.randn(1, 16, 32), path)


def _save(module: object, example: object, path: Path) -> None:
    import torch
    from executorch.exir import to_edge

    program = to_edge(torch.export.export(module.eval(), (example,))).to_executorch()  # type: ignore[attr-defined]
    with path.open("wb") as file:
        program.write_to_file(file)


def copy(source: Path, target: Path) -> None:
    """A plain copy."""
    with source.open("rb") as reading, target.open("wb") as writing:
        while piece := reading.read(_PIECE):
            writing.write(piece)


def read_and_write(source: Path, target: Path) -> None:
    """What etdev does with a file that it does not change."""
    from etdev.program import read
    from etdev.program.writer import write_into

    write_into(read(source), target)


def relink(source: Path, target: Path) -> None:
    """`etdev relink`, as a process."""
    subprocess.run(_relink_command(source, target), check=True, capture_output=True)


def _relink_command(source: Path, target: Path) -> list[str]:
    return [sys.executable, "-m", "etdev", "relink", str(source), "-o", str(target)]


Way = Callable[[Path, Path], None]


def medians(ways: list[Way], source: Path, pairs: int) -> list[float]:
    """Seconds of each way to make a new file from a warm one, in alternating order."""
    target = source.with_suffix(".copy")
    times: list[list[float]] = [[] for _ in ways]
    for pair in range(pairs + 1):
        order = range(len(ways)) if pair % 2 else reversed(range(len(ways)))
        for index in order:
            target.unlink(missing_ok=True)
            start = time.perf_counter()
            ways[index](source, target)
            if pair:  # The first round warms up.
                times[index].append(time.perf_counter() - start)
    target.unlink()
    return [statistics.median(found) for found in times]


def peak_memory(command: list[str]) -> dict[str, int]:
    """Return the most memory that a process takes, by kind, in bytes.

    Anonymous memory is allocated. Resident memory also counts pages of files that the process maps.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = dict.fromkeys(_KINDS, 0)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        for kind, field in _KINDS.items():
            if found := re.search(rf"{field}:\s+(\d+) kB", status):
                peaks[kind] = max(peaks[kind], int(found[1]) << 10)
        time.sleep(_SAMPLE)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peaks


def measure_large(folder: Path, mebibytes: int, pairs: int) -> list[Finding]:
    """Time and memory that the size of a file costs."""
    large, small, target = folder / "large.pte", folder / "small.pte", folder / "target.pte"
    make_large(large, mebibytes << 20)
    make_large(small, 1 << 20)
    plain, ours, linked = medians([copy, read_and_write, relink], large, pairs)
    limit = 0.5 + 1.5 * plain
    findings = [
        Finding(f"plain copy of {mebibytes} MiB", f"{plain:.3f} s", "", holds=True),
        Finding("read and write", f"{ours:.3f} s, {ours / plain:.2f} x", "1.50 x", holds=ours <= 1.5 * plain),
        Finding("`etdev relink`, start and disk included", f"{linked:.3f} s", f"{limit:.3f} s", holds=linked <= limit),
    ]
    for name, command in (
        ("read and write", lambda source: [sys.executable, "-c", _READ_WRITE, str(source), str(target)]),
        ("`etdev relink`", lambda source: _relink_command(source, target)),
    ):
        with_small, with_large = (peak_memory(command(source)) for source in (small, large))
        for kind in _KINDS:
            few, many = with_small[kind], with_large[kind]
            text = f"{few / 2**20:.1f} MiB for 1 MiB, {many / 2**20:.1f} MiB for {mebibytes} MiB"
            findings.append(Finding(f"{name}: {kind} memory", text, "8 MiB more", holds=many - few <= 8 << 20))
    return findings


def measure_long(folder: Path, pairs: int) -> list[Finding]:
    """Time that instructions cost."""
    from etdev.program import read

    long = folder / "long.pte"
    make_long(long)
    count = sum(len(chain.instructions) for chain in read(long).method("forward").chains)
    plain, linked = medians([copy, relink], long, pairs)
    return [
        Finding(f"plain copy of {count} instructions", f"{plain:.3f} s", "", holds=True),
        Finding("`etdev relink`, start included", f"{linked:.3f} s", "1.000 s", holds=linked <= 1),
    ]


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="where the files are made, and removed after; default: temporary")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        findings = measure_long(Path(folder), arguments.pairs)
        findings += measure_large(Path(folder), arguments.mebibytes, arguments.pairs)
    print("| what | measured | limit | |\n| --- | --- | --- | --- |")
    for finding in findings:
        verdict = "" if not finding.limit else "holds" if finding.holds else "FAILS"
        print(f"| {finding.what} | {finding.measured} | {finding.limit} | {verdict} |")
    return 0 if all(finding.holds for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
