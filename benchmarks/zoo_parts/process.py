"""Memory of a process that runs a file: ``python -m zoo_parts.process MODEL [FILE]`` prints bytes.

Linux alone says how large a process was at its peak since a given moment.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

from etdev import compat


def peak(name: str, file: Path | None) -> int:
    """Return the largest resident set, in bytes, of a process that loads the file, if any, and calls it once."""
    command = [sys.executable, "-m", "zoo_parts.process", name, *([str(file)] if file else [])]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return int(done.stdout.split()[-1])


def main() -> None:
    """Run the file and print the peak."""
    import torch  # noqa: F401 - the runtime is linked against its libraries
    from architectures import BY_NAME, random_inputs

    library = importlib.import_module(compat.runtime_module())
    name, *files = sys.argv[1:]
    inputs = random_inputs(BY_NAME[name], 0)
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak: importing takes more than running.
    if files:
        program = library._load_program(files[0])
        program.load_method("forward")(inputs)
    status = Path("/proc/self/status").read_text()
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    print(int(kib) * 1024)


if __name__ == "__main__":
    main()
