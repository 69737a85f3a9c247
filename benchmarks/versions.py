"""What differs between two versions of ExecuTorch: memory, speed and outputs of ten models of the zoo.

This Python has one version. `--other` names the Python of an environment with another one; by default, that of
`make test-older`. Each version builds each model, by hand and with etdev, and runs etdev's file in its own runtime, in
one thread. Times are processor time. The two runtimes are called in turn, each first in every other pair.

    python benchmarks/versions.py [--other PYTHON] [--only NAME ...] [--backend NAME] [--pairs 21] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo_parts.latency import ONE_THREAD
from zoo_parts.outputs import relative_error, same_bits
from zoo_parts.result import BACKENDS, Backend

from etdev import compat

BENCHMARKS = Path(__file__).resolve().parent
MODELS = (
    "mobilenet-v2", "resnet", "convnext", "vit", "segformer", "bert", "gpt2", "llama-decode", "t5", "whisper-decoder",
)  # fmt: skip
"""Models of all kinds that build in about a minute."""
OTHER = str(BENCHMARKS.parent / f".venv-{compat.TESTED[1]}" / "bin" / "python")
SECONDS = 0.02
"""Time of one measurement; a faster program is called several times."""


class Version:
    """A process with one version of ExecuTorch."""

    def __init__(self, python: str) -> None:
        command, environment = [os.path.abspath(python), "-m", "zoo_parts.version"], os.environ | ONE_THREAD
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the process runs
        self._process = subprocess.Popen(
            command,
            cwd=BENCHMARKS,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.name: str = self.ask("version")

    def ask(self, what: str, **arguments: Any) -> Any:
        """Let the process do something. Raises :class:`RuntimeError` if it fails or ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"ask": what, **arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the process ended: {self._log.read()[-300:].decode(errors='replace')}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Row:
    """A model on a backend; pairs are of the other version and of this one."""

    model: str
    backend: str
    plain: tuple[int, int]
    """Bytes of planned memory of plain ExecuTorch's files."""
    etdev: tuple[int, int]
    """Bytes of planned memory of etdev's files."""
    same_file: bool
    """True if etdev's files are equal."""
    same_outputs: bool
    difference: float
    """Largest difference of outputs, relative to the largest element."""
    errors: tuple[float, float]
    """The same against eager PyTorch."""
    seconds: tuple[float, float]
    """Median processor time of a call."""
    ratios: tuple[float, ...]
    """Time with this version over time with the other one, pair by pair."""

    @property
    def ratio(self) -> float:
        """Median of the pairs."""
        return statistics.median(self.ratios)


def measure(model: str, backend: Backend, versions: Sequence[Version], pairs: int, folder: Path) -> Row:
    """Build and run a model with both versions."""
    import torch

    built, found, errors = [], [], []
    for version in versions:
        place = folder / f"{model}.{backend}.{version.name}"
        if not (place / "built.json").exists():
            place.mkdir(parents=True, exist_ok=True)
            made = version.ask("build", model=model, backend=backend, folder=str(place))
            (place / "built.json").write_text(json.dumps(made))
        built.append(json.loads((place / "built.json").read_text()))
        version.ask("run", model=model, file=built[-1]["file"], saved=str(place / "outputs.pt"))
        saved = torch.load(place / "outputs.pt")
        found.append(saved["outputs"])
        errors.append(relative_error(saved["outputs"], saved["eager"]))
    times: tuple[list[float], list[float]] = ([], [])
    if pairs:
        once = [version.ask("load", model=model, file=item["file"]) for version, item in zip(versions, built)]  # noqa: B905
        repeats = [max(1, round(SECONDS / max(seconds, 1e-6))) for seconds in once]
        for pair in range(pairs):
            for which in (0, 1) if pair % 2 else (1, 0):
                times[which].append(versions[which].ask("time", repeats=repeats[which]))
    first, second = built
    return Row(
        model,
        backend,
        (first["plain"], second["plain"]),
        (first["etdev"], second["etdev"]),
        Path(first["file"]).read_bytes() == Path(second["file"]).read_bytes(),
        same_bits(*found),
        relative_error(found[1], found[0]),
        (errors[0], errors[1]),
        (statistics.median(times[0]), statistics.median(times[1])) if pairs else (0.0, 0.0),
        tuple(new / old for old, new in zip(*times, strict=True)) or (1.0,),
    )


def main() -> int:
    """Measure and print the table; 1 if a model failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", default=OTHER, metavar="PYTHON", help="Python with the other version")
    parser.add_argument("--only", nargs="+", default=MODELS, metavar="NAME", help="these models of the zoo")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS, metavar="NAME")
    parser.add_argument("--pairs", type=int, default=21, help="runs of each file for its speed; 0: none")
    parser.add_argument("--folder", type=Path, help="keep the files there, and build no file that is there already")
    arguments = parser.parse_args()
    versions = [Version(arguments.other), Version(sys.executable)]
    old, new = (version.name for version in versions)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, one thread")
    heads = [
        "model",
        "backend",
        *(f"{made} {name}, B" for made in ("plain", "etdev") for name in (old, new)),
        "same file",
    ]
    heads += [f"{old}, ms", f"{new}, ms", "times as long", "range", "outputs differ by", f"error {old}", f"error {new}"]
    print(f"| {' | '.join(heads)} |")
    print("|---|---|" + "---:|" * 4 + "---|" + "---:|" * 7)
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder.absolute() if arguments.folder else Path(temporary)
        for backend in arguments.backend:
            for model in arguments.only:
                try:
                    rows.append(measure(model, backend, versions, arguments.pairs, folder))
                    print(_line(rows[-1]), flush=True)
                except RuntimeError as error:
                    failed = True
                    print(f"{model}, {backend}: {' '.join(str(error).split())[:300]}", file=sys.stderr)
    for version in versions:
        version.end()
    for backend in arguments.backend:
        if chosen := [row for row in rows if row.backend == backend]:
            print(_summary(backend, chosen))
    return int(failed)


def _line(row: Row) -> str:
    memory = [f"{size:,}" for size in (*row.plain, *row.etdev)]
    times = [f"{seconds * 1e3:,.2f}" for seconds in row.seconds]
    spread = f"{min(row.ratios):.2f} to {max(row.ratios):.2f}"
    outputs = "0" if row.same_outputs else f"{row.difference:.0e}"
    cells = [row.model, row.backend, *memory, "yes" if row.same_file else "no", *times, f"{row.ratio:.2f}", spread]
    return f"| {' | '.join([*cells, outputs, *(f'{error:.0e}' for error in row.errors)])} |"


def _summary(backend: str, rows: Sequence[Row]) -> str:
    ratios = [row.ratio for row in rows]
    slowest, furthest = max(rows, key=lambda row: row.ratio), max(rows, key=lambda row: row.difference)
    memory = sum(row.etdev[0] != row.etdev[1] for row in rows)
    return (
        f"{backend}: {len(rows)} models; {sum(row.same_file for row in rows)} files of etdev's are equal, "
        f"{memory} need other memory; times as long: median {statistics.median(ratios):.2f}, "
        f"{min(ratios):.2f} to {slowest.ratio:.2f} ({slowest.model}); outputs of "
        f"{sum(row.same_outputs for row in rows)} are bit-identical, the others differ by up to "
        f"{furthest.difference:.0e} ({furthest.model})"
    )


if __name__ == "__main__":
    sys.exit(main())
