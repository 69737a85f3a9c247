"""Output in the docs of commands on examples/digits: README.md, and the pages that explain its targets."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from etdev.runtime.native.toolchain import Missing, find_toolchain
from support import pages

# Several builds, on a machine that may do other work too.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.integration, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Shown:
    """A block of output, and the command that prints its lines among others.

    Commands run in a copy of examples/digits; that of README.md runs in the root of a clone.
    """

    page: str
    begins: str
    """Beginning of the block, without ``$``."""
    command: str
    code: int = 0
    before: str = ""
    """A command that comes first."""
    compiler: bool = False


NAIVE = "--set targets.portable.memory.planner=naive"
SMALL = "'targets.xnnpack.budget={ file=\"100KiB\", delegated=0.95}'"
LITTLE = "'targets.portable.budget.memory={ cpu = \"768KiB\" }'"
INTEGERS = "'targets.xnnpack-int8.io.forward.quantized=\"all\"'"
CALLER = '\'targets.portable.io.forward={ inputs = "caller", outputs = "caller" }\''
SHOWN = (
    Shown("README.md", "portable  examples/digits", "etdev build -c examples/digits/etdev.toml"),
    Shown("verification.md", "bytes      passed", "etdev verify portable", compiler=True),
    Shown("report.md", "etdev inspect --chart", "etdev inspect --chart build/portable/digits.pte"),
    Shown("runner.md", "etdev runner", "etdev runner digits-cc xnnpack", compiler=True),
    Shown("cache.md", "etdev cache why", f"etdev cache why portable {NAIVE}"),
    Shown("verification.md", "budget     failed", f"etdev build xnnpack --set {SMALL}", code=1),
    Shown("memory.md", "etdev build portable --no-verify", f"etdev build portable --no-verify -v {NAIVE}"),
    Shown("memory.md", "budget     failed", f"etdev build portable {NAIVE} --set {LITTLE}", code=1),
    Shown(
        "memory.md",
        "inputs     0",
        "etdev inspect portable",
        before=f"etdev build portable -q --set {CALLER}",
    ),
    Shown("quantization.md", "etdev build xnnpack-int8", f"etdev build xnnpack-int8 -v --set {INTEGERS}"),
)
ONCE = "compiling the native runtime, once"
"""What the first command that needs the native runtime says on standard error."""


def test_the_blocks_are_what_the_commands_print(repository: Path, tmp_path: Path) -> None:
    without = shutil.ignore_patterns("build", "__pycache__", "etdev.lock")
    shutil.copytree(repository / "examples" / "digits", tmp_path / "examples" / "digits", ignore=without)
    compiler = not isinstance(find_toolchain(), Missing)
    wrong = []
    for case in SHOWN:
        if case.compiler and not compiler:
            continue
        place = repository / (case.page if case.page == "README.md" else f"docs/{case.page}")
        (block,) = [
            found for found in pages.blocks(place) if found.text.removeprefix("$ ").lstrip().startswith(case.begins)
        ]
        folder = tmp_path if case.page == "README.md" else tmp_path / "examples" / "digits"
        if case.before:
            assert pages.run(case.before, folder)[0] == 0
        code, printed = pages.run(case.command, folder)
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith(("$ ", ONCE))]
        missing = [line for line in lines if pages.plain(line) not in pages.plain(printed)]
        if missing or code != case.code:
            wrong.append(
                f"{place.name}: {case.command}: {code}\n" + "\n".join([*missing, "the command prints", printed])
            )
    assert not wrong, "\n\n".join(wrong)
