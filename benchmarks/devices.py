"""Models of the zoo on two simulated devices, cut in several ways, against eager PyTorch.

Each model is built by etdev with the reference backend, once for each cut (`zoo_parts/on_devices.py` has them), and run
by the interpreter: in the planned buffers, on devices whose memory the host cannot touch, with poison in all bytes that
are not in use, call after call on one state. ExecuTorch's C++ runtime runs it too, where that can be compiled, and has
to copy the bytes that the report states. So are the targets of examples/gpu, and two cuts of examples/transformer. Each
model is a process of its own; results are kept, so that an interrupted run goes on where it was. Ends with 1 if an
output differs from eager PyTorch's by more than 1e-4 of its largest magnitude, or if anything fails.

    python benchmarks/devices.py [--only NAME ...] [--cut NAME ...] [--fresh] [--results FOLDER]
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
from zoo_parts.on_devices import CUTS, EXAMPLES, FORMAT, Cut, OnDevices

BENCHMARKS = Path(__file__).resolve().parent
RESULTS = BENCHMARKS.parent / "build" / "devices"
LIMIT = 1800
"""Seconds for one model."""
MODELS = (
    "resnet",
    "mobilenet-v2",
    "convnext",
    "vit",
    "swin",
    "segformer",
    "bert",
    "gpt2",
    "llama-decode",
    "mamba",
    "t5",
    "whisper",
)


def main() -> int:
    """Measure what is not there yet, and print all."""
    from architectures import ARCHITECTURES

    known = [architecture.name for architecture in ARCHITECTURES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [*EXAMPLES, *MODELS]
    parser.add_argument("--only", nargs="+", choices=[*EXAMPLES, *known], default=default, metavar="NAME", help="these")
    parser.add_argument("--cut", nargs="+", choices=list(CUTS), default=list(CUTS), metavar="NAME", help="these ways")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: build/devices")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    found = [_measured(name, arguments.cut, arguments.results, fresh=arguments.fresh) for name in arguments.only]
    _print(found)
    return 0 if all(result.good for result in found) else 1


def _measured(name: str, cuts: Sequence[str], results: Path, *, fresh: bool) -> OnDevices:
    """The result of a process, now or before with the same versions."""
    file = results / f"{name.replace('/', '-')}.json"
    key = result_key(FORMAT, {} if name in EXAMPLES else model_facts(name), {cut: CUTS[cut] for cut in cuts})
    if file.exists() and not fresh:
        known = OnDevices.model_validate_json(file.read_text())
        if known.key == key:
            return known
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "zoo_parts.on_devices", name, key, str(file), *cuts]
    try:
        with file.with_suffix(".log").open("w") as log:
            done = subprocess.run(command, cwd=BENCHMARKS, stdout=log, stderr=log, timeout=LIMIT, check=False)
        trouble = f"the process ended with {done.returncode}, see {file.with_suffix('.log')}"
    except subprocess.TimeoutExpired:
        trouble = f"no result within {LIMIT} s"
    if not file.exists():
        return OnDevices(key=key, model=name, trouble=trouble)
    result = OnDevices.model_validate_json(file.read_text())
    print(f"{name}: {result.seconds:.0f} s{'' if result.good else ', not as it should be'}", file=sys.stderr)
    return result


def _print(results: Sequence[OnDevices]) -> None:
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}\n"
    )
    titles = ("model", "cut", "instructions", "delegates", "copies", "to devices, B", "back, B", "host, B")
    print(f"| {' | '.join((*titles, 'cuda:0, B', 'cuda:1, B', 'error', 'in C++', 's'))} |")
    print(f"| --- | --- |{' ---: |' * 11}")
    for result in results:
        for cut in result.cuts:
            print(_row(result.model, cut))
    for result in results:
        for text in (result.trouble, *(f"{cut.name}: {cut.trouble}" for cut in result.cuts if cut.trouble)):
            if text:
                print(f"{result.model}: {text}")
    cuts = [cut for result in results for cut in result.cuts]
    models = len([result for result in results if result.good])
    print(f"\n{models} of {len(results)} models, {sum(cut.good for cut in cuts)} of {len(cuts)} programs are right.")


def _row(model: str, cut: Cut) -> str:
    memory = (cut.memory.get(device, 0) for device in ("cpu", "cuda:0", "cuda:1"))
    counts = (cut.instructions, cut.delegates, cut.copies, cut.h2d_bytes, cut.d2h_bytes, *memory)
    errors = ("none" if error is None else f"{error:.1e}" for error in (cut.error, cut.native_error))
    cells = (*(f"{count:,}" for count in counts), *errors, f"{cut.seconds:.1f}")
    return f"| {model} | {cut.name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
