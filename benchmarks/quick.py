"""Figures that a change may worsen, measured in about ten minutes, beside those of the last committed run.

*Exact* figures depend only on the code and on the versions of packages: bytes, and ratios of bytes. The others are
seconds of processor time, and ratios of them. The table marks a figure ``worse`` if it is exact and larger than before,
or if it is measured and more than 1.25 times as large. Seconds of another machine are not judged, and neither is any
figure of other versions of packages. Ends with 1 if a figure is worse. The whole benchmarks have more models and pairs.

    python benchmarks/quick.py [--only PART ...] [--save]

``--save`` writes the figures to `benchmarks/history/DATE.json`, to be committed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "benchmarks" / "history"
NOISE = 1.25
"""Factor up to which a measured figure counts as unchanged."""
BUILDS = (("mobilenet-v2-224", "portable"), ("distilbert-base", "portable"), ("electra-small", "xnnpack"))
FILES = (
    ("mobilenet-v2", "portable"),
    ("bert", "portable"),
    ("llama-decode", "portable"),
    ("segformer", "portable"),
    ("unet-conditional", "portable"),
    ("whisper", "xnnpack"),
)
ORDERS = ("unet", "inception")
PLANS = (("transformer", 10_000), ("convolutions", 50_000), ("scattered", 10_000))
INSTRUCTIONS = 50_000
MEBIBYTES = 256


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, smaller being better."""

    value: float
    unit: str
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """All figures of one run, and what they were measured on."""

    machine: str
    versions: tuple[str, ...]
    figures: Mapping[str, Figure]


def startup(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure commands that a user waits for: help, validation, and a build without changes."""
    project = folder / "digits"
    shutil.copytree(ROOT / "examples" / "digits", project, ignore=shutil.ignore_patterns("build", "etdev.lock"))
    _seconds(["build"], project, folder)
    for command in (["--help"], ["validate"], ["build"]):
        name = "unchanged build of three targets" if command == ["build"] else f"etdev {command[0]}"
        yield name, Figure(median(_seconds(command, project, folder) for _ in range(7)), "s")


def builds(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure builds over the same steps by hand."""
    import overhead

    for model, backend in BUILDS:
        costs = overhead.compare(model, backend, "etdev", 1).values()
        for name, part in (("time", lambda cost: cost.seconds), ("memory", lambda cost: cost.memory)):
            yield f"build of {model}, {backend}: {name}", Figure(overhead.ratios(*costs, part)[0], "x by hand")


def files(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure planned memory and speed of built files over those of plain ExecuTorch."""
    from zoo_parts import plain
    from zoo_parts.latency import time_pairs
    from zoo_parts.steps import build_step

    for model, backend in FILES:
        path = folder / "plain.pte"
        plain.write_plain(plain.lower(plain.export(model), backend), plain.DEFAULTS, path)
        built = build_step(model, backend, [], folder / model).path
        name = f"file of {model}, {backend}"
        yield f"{name}: planned memory", Figure(_planned(built) / _planned(path), "x plain", exact=True)
        pairs = zip(*time_pairs(model, built, path, 7), strict=True)
        yield f"{name}: time of a call", Figure(median(one / other for one, other in pairs), "x plain")


def orders(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure planned memory with reordered instructions over that in the original order."""
    import order

    arguments = argparse.Namespace(models=ORDERS, backends=(), folder=folder)
    for name, target, path in order.objects(arguments):
        row = order.measure(name, target, path)
        yield f"order of {name}, {target}", Figure(row.after / row.before, "x original", exact=True)


def plans(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure size and time of plans for made-up graphs."""
    import planner
    from etdev.planner import Buffer, Problem

    planner.warm_up()
    for kind, count in PLANS:
        rows = planner.GRAPHS[kind](count)
        plan, seconds = planner.timed(Problem(tuple(Buffer(*row, planner.ALIGNMENT) for row in rows)))
        name = f"plan of {kind}, {count:,} tensors"
        yield f"{name}: size", Figure(plan.size / plan.lower_bound, "x bound", exact=True)
        yield f"{name}: time", Figure(seconds, "s")


def relinks(folder: Path) -> Iterator[tuple[str, Figure]]:
    """Measure links of large programs."""
    import files as large

    for kind in ("slices", "live_conds"):
        name = f"link and proof of {INSTRUCTIONS:,} instructions, {kind}"
        yield name, Figure(_seconds_of_link(kind), "s")
    path = folder / "large.pte"
    large.make_large(path, MEBIBYTES << 20)
    copied, linked = large.medians([large.copy, large.relink], path, 3)
    yield f"relink of {MEBIBYTES} MiB: time", Figure(linked / copied, "x copy")
    command = [sys.executable, "-m", "etdev", "relink", str(path), "-o", str(folder / "linked.pte")]
    peak = large.peak_memory(command)["anonymous"] / 2**20
    yield f"relink of {MEBIBYTES} MiB: allocated memory", Figure(peak, "MiB")


PARTS: Mapping[str, Callable[[Path], Iterator[tuple[str, Figure]]]] = {
    "startup": startup,
    "builds": builds,
    "files": files,
    "orders": orders,
    "plans": plans,
    "relinks": relinks,
}


def _seconds(command: list[str], project: Path, folder: Path) -> float:
    """Return the processor time of an etdev command and of its children; raises CalledProcessError."""
    before = os.times()
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # After the first run, byte code is cached.
    whole = [sys.executable, "-m", "etdev", *command]
    subprocess.run(whole, cwd=project, env=environment, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _seconds_of_link(kind: str) -> float:
    """Return the processor time of a link and its proof, of a program that the tests of scale make."""
    code = f"from linker import test_scale as t; print(t.seconds(t.{kind}, {INSTRUCTIONS}))"
    # A process of its own: some folders of the tests have names of benchmarks.
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    return float(done.stdout)


def _planned(path: Path) -> int:
    from etdev.program import read
    from etdev.program.footprint import planned_memory

    return sum(planned_memory(read(path)).values())


def machine() -> str:
    """Return what the seconds depend on."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return f"{platform.system()}, {len(names)} x {names[0] if names else platform.machine()}"


def last_run() -> tuple[str, Run] | None:
    """Return the name and the content of the newest committed run."""
    path = max(HISTORY.glob("*.json"), default=None)
    if path is None:
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    figures = {name: Figure(**figure) for name, figure in found["figures"].items()}
    return path.stem, Run(found["machine"], tuple(found["versions"]), figures)


def verdict(now: Figure, before: Figure | None, *, same_machine: bool, same_versions: bool) -> str:
    """Return ``new``, ``not judged``, ``worse``, ``better`` or an empty text."""
    if before is None:
        return "new"
    if not same_versions or (now.unit in ("s", "MiB") and not same_machine):
        return "not judged"
    margin = 1.0 + 1e-9 if now.exact else NOISE
    if now.value > margin * before.value:
        return "worse"
    return "better" if before.value > margin * now.value else ""


def main() -> int:
    """Measure, print the table, and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    parser.add_argument("--save", action="store_true", help="write the figures to benchmarks/history")
    arguments = parser.parse_args()
    if arguments.save and arguments.only != list(PARTS):
        parser.error("--save needs all parts")

    from zoo_parts.key import versions

    from etdev.pipeline.project.quiet import quiet_libraries

    last = last_run()
    name, before = last or ("no run", Run("", (), {}))
    run = Run(machine(), (f"Python {platform.python_version()}", *versions()), {})
    print(f"{run.machine}; {', '.join(run.versions)}; last: {name}\n")
    print(f"| figure | {name} | now | unit | |\n| --- | ---: | ---: | --- | --- |")
    figures: dict[str, Figure] = {}
    verdicts = []
    begin = time.monotonic()
    same_machine, same_versions = run.machine == before.machine, run.versions == before.versions
    for part in arguments.only:
        with tempfile.TemporaryDirectory() as folder, quiet_libraries():
            for title, figure in PARTS[part](Path(folder)):
                old = before.figures.get(title)
                verdicts.append(verdict(figure, old, same_machine=same_machine, same_versions=same_versions))
                then = f"{old.value:.3f}" if old else "-"
                print(f"| {title} | {then} | {figure.value:.3f} | {figure.unit} | {verdicts[-1]} |", flush=True)
                figures[title] = figure
    print(f"\n{verdicts.count('worse')} of {len(verdicts)} figures are worse; {time.monotonic() - begin:.0f} s")
    if arguments.save:
        HISTORY.mkdir(exist_ok=True)
        path = HISTORY / f"{datetime.datetime.now(tz=datetime.UTC).date().isoformat()}.json"
        content = asdict(Run(run.machine, run.versions, figures))
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"written: {path}")
    return int("worse" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
