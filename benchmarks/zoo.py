"""Memory, outputs and speed of programs of many architectures: plain ExecuTorch's, and etdev's step by step.

Each model (zoo_project/architectures.py) is exported and lowered by hand, as ExecuTorch's documentation does it, and
built by etdev: with its planner alone, then with one more part at each step. All files run in the stock runtime on the
same random inputs. Each model and backend is measured by a process of its own; results are kept, so that an
interrupted run goes on where it was. Ends with 1 if a criterion fails.

    python benchmarks/zoo.py [--only NAME ...] [--backend NAME] [--fresh] [--pairs 21] [--results FOLDER]
    python benchmarks/zoo.py --sizes real                        # default configurations, 224 px, 128 tokens
    python benchmarks/zoo.py --list | --table
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo_parts.key import model_facts, result_key, versions
from zoo_parts.latency import PAIRS
from zoo_parts.result import BACKENDS, FORMAT, Backend, Result, read_result, result_file
from zoo_parts.table import print_tables

BENCHMARKS = Path(__file__).resolve().parent
RESULTS = BENCHMARKS.parent / "build" / "zoo"
LIMIT = 3600
"""Seconds for one model on one backend."""


def main() -> int:
    """Measure what is not there yet, and print all."""
    from architectures import ARCHITECTURES, BY_NAME, REAL_SIZES

    arguments = _parser(list(BY_NAME)).parse_args()
    chosen = REAL_SIZES if arguments.sizes == "real" else ARCHITECTURES
    if arguments.list:
        for item in chosen:
            print(f"{item.name:20} {item.area:16} {item.model}")
        return 0
    results: Path = arguments.results
    results.mkdir(parents=True, exist_ok=True)
    names = arguments.only or [architecture.name for architecture in chosen]
    wanted: list[tuple[str, Backend]] = [(name, backend) for backend in arguments.backend for name in names]
    if not arguments.table:
        for name, backend in wanted:
            _measure(name, backend, results, arguments)
    found = [result for name, backend in wanted if (result := read_result(result_file(results, name, backend)))]
    return 0 if _report(found, len(wanted), arguments) else 1


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="these models")
    parser.add_argument(
        "--sizes", choices=["small", "real"], default="small", help="the 51 models, or those of real size"
    )
    parser.add_argument(
        "--final", action="store_true", help="plain ExecuTorch's file and etdev's, both without any setting; no others"
    )
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS, metavar="NAME")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="runs of each file for latency; 0: none")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: build/zoo")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--list", action="store_true", help="print the models")
    parser.add_argument("--table", action="store_true", help="print what was measured before, measure nothing")
    return parser


def _measure(name: str, backend: Backend, results: Path, arguments: argparse.Namespace) -> None:
    """Let a process write the result, unless there is one of the same versions."""
    which = "final" if arguments.final else "all"
    file, key = result_file(results, name, backend), _key(name, arguments.pairs, which)
    known = read_result(file)
    if known is not None and known.key == key and not arguments.fresh:
        return
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "zoo_parts.measure", name, backend, key, str(arguments.pairs), which, str(file)]
    try:
        with file.with_suffix(".log").open("w") as log:
            done = subprocess.run(command, cwd=BENCHMARKS, stdout=log, stderr=log, timeout=LIMIT, check=False)
        trouble = f"the process ended with {done.returncode}, see {file.with_suffix('.log').name}"
    except subprocess.TimeoutExpired:
        trouble = f"no result within {LIMIT} s"
    result = read_result(file)
    if result is None:
        result = Result(key=key, model=name, backend=backend, troubles=(trouble,))
        file.write_text(result.model_dump_json(indent=1) + "\n")
    print(
        f"{name}, {backend}: {result.seconds:.0f} s{''.join(f'; {text}' for text in result.troubles)}", file=sys.stderr
    )


def _key(name: str, pairs: int, which: str) -> str:
    """Return the digest of what a result depends on; ``which`` of etdev's files are measured: "all" or "final"."""
    return result_key(FORMAT, model_facts(name), pairs, which)


def by_hand(name: str, backend: Backend, path: Path) -> None:
    """Write the file that plain ExecuTorch makes of a model, with its defaults."""
    from zoo_parts.plain import DEFAULTS, export, lower, write_plain

    write_plain(lower(export(name), backend), DEFAULTS, path)


def _report(results: Sequence[Result], wanted: int, arguments: argparse.Namespace) -> bool:
    """Print tables and criteria; whether all of them hold."""
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}")
    print(f"{len(results)} of {wanted} measured, latency in one thread.")
    which = "final" if arguments.final else "all"
    old = {result.model for result in results if result.key != _key(result.model, arguments.pairs, which)}
    if old:
        print(f"Of other versions than those that are here, or measured otherwise: {', '.join(sorted(old))}")
    good = len(results) == wanted
    for backend in BACKENDS:
        if chosen := [result for result in results if result.backend == backend]:
            good = print_tables(backend, chosen) and good
    return good


if __name__ == "__main__":
    sys.exit(main())
