"""What etdev's own work costs: a build's load through write, against the same steps written by hand.

Both sides run in fresh processes, alternating; each process times itself from before it imports torch until the file is
written, with verification off. etdev links its own file, ExecuTorch plans the other. Prints the pairs, the medians and
their ratio.

    python benchmarks/overhead.py [--pairs N] [--limit RATIO]
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
import time
from pathlib import Path

PROJECT = Path(__file__).parent / "overhead_project"


def by_hand(out: Path) -> Path:
    """Export, lower, emit and write as ExecuTorch's documentation does it."""
    sys.path.insert(0, str(PROJECT))
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from model import make

    program = torch.export.export(make().eval(), (torch.randn(1, 3, 224, 224),))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    emitted = lowered.to_executorch()
    path = out / "mobilenet.pte"
    with path.open("wb") as file:
        emitted.write_to_file(file)
    return path


def by_etdev(out: Path) -> Path:
    """The same through the Python API."""
    import etdev

    override = f"project.out={json.dumps(str(out))}"
    result = etdev.build(PROJECT / "etdev.toml", verify=False, overrides=[override], environ={})
    return result.path("xnnpack")


def measure(side: str) -> float:
    """Seconds of one side, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--side", side], check=True, capture_output=True, text=True)
    seconds: float = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return seconds


def run_side(side: str) -> None:
    """Body of the child process."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        {"hand": by_hand, "etdev": by_etdev}[side](Path(folder))
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds}))


def main() -> int:
    """Run the pairs and judge the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.05, help="fail above this ratio")
    parser.add_argument("--side", choices=("hand", "etdev"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side)
        return 0
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    times: dict[str, list[float]] = {"hand": [], "etdev": []}
    for pair in range(arguments.pairs):
        for side in ("hand", "etdev") if pair % 2 == 0 else ("etdev", "hand"):
            times[side].append(measure(side))
        print(f"pair {pair + 1}: by hand {times['hand'][-1]:.2f} s, etdev {times['etdev'][-1]:.2f} s", flush=True)
    hand, etdev = (statistics.median(times[side]) for side in ("hand", "etdev"))
    print(f"median: by hand {hand:.2f} s, etdev {etdev:.2f} s, ratio {etdev / hand:.3f} (limit {arguments.limit})")
    return 0 if etdev / hand <= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
