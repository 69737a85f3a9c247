"""Damaged ``.pte`` files that reach new code: fuzzing guided by coverage, with atheris.

The fuzzer keeps each file that reaches a new branch of etdev's code. It damages the kept files further, mostly with the
structure-aware damage of ``files.py``. Each file is read. An accepted one is described, relinked, verified and made a
page of, in this process. The kept files are in ``corpus`` of the folder, so that a run goes on with them.

Demanded is the same of these commands as in ``files.py``. No file is run, compared or given a ``.ptd``: that takes too
long for each file. The order of trials depends on the machine, so findings are kept as files.

    pip install --group fuzz
    python benchmarks/campaigns/covered.py [--seconds S] [--count N] [--seed N] [--files FILE ...]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

_FOLDER = Path(__file__).resolve().parents[2] / "build" / "campaigns" / "covered"
_INSTRUMENTED = ["etdev.program", "etdev.linker", "etdev.validator", "etdev.inspection", "etdev.verification"]
_LARGEST = 64 << 10
"""Bytes of a file. Larger ones are seldom faster to a branch."""
_AWARE = 0.75
"""Share of the structure-aware damage."""
_GRACE = 120.0
"""Seconds that a process may take beyond its time, to start and for its last file."""
_PROGRESS = re.compile(rb"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> int:
    """Fuzz for a time, in one process after the other; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600, help="end after so many seconds (default: 600)")
    parser.add_argument("--count", type=int, default=0, help="end after so many files")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="place of all files")
    parser.add_argument("--files", nargs="*", metavar="FILE", help="files to begin with instead of the usual ones")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    (options.folder / "found").mkdir(parents=True, exist_ok=True)
    (options.folder / "corpus").mkdir(exist_ok=True)
    if options.worker:
        return _work(options)
    found = _listen(options)
    if options.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key}: {value}")
    return 1 if found["wrong"] else 0


# The parent


def _listen(options: argparse.Namespace) -> dict[str, Any]:
    """Start processes until the time is over: a crash is a finding, and the next process goes on with the corpus."""
    begin, crashes, ran, figures, last = time.monotonic(), 0, 0, {}, b""
    ends, wrong = Counter[str](), list[str]()
    counts = options.folder / "counts.json"
    while (left := options.seconds - (time.monotonic() - begin)) > 0 and (not options.count or ran < options.count):
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--worker"]
        command += ["--seconds", str(left), "--seed", str(options.seed + crashes)]
        command += ["--count", str(options.count - ran)] if options.count else []
        counts.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as output:
            try:
                code = subprocess.run(
                    command, stdout=output, stderr=output, check=False, timeout=left + _GRACE
                ).returncode
            except subprocess.TimeoutExpired:
                code = f"no end after {left + _GRACE:.0f} s"
            output.seek(0)
            last = output.read()
        if lines := _PROGRESS.findall(last):
            ran += int(lines[-1][0])
            figures = {"branches": int(lines[-1][1]), "features": int(lines[-1][2]), "corpus": int(lines[-1][3])}
        if counts.exists():
            told = json.loads(counts.read_text())
            ends.update(told["ends"])
            wrong += told["wrong"]
        if code == 0:
            break
        crashes += 1
        log = _store(options.folder, last[-20_000:], ".txt")
        wrong.append(f"{log}: crash: the process ended with {code}")
        if not lines:
            raise SystemExit(f"the fuzzer did not start:\n{last[-2000:].decode(errors='replace')}")
    seconds = round(time.monotonic() - begin, 1)
    return {"trials": ran, "seconds": seconds, **figures, "ends": dict(sorted(ends.items())), "wrong": wrong}


def _store(folder: Path, content: bytes, suffix: str) -> str:
    """Store a finding, and return the name of its file: no later run has the same one for another finding."""
    name = hashlib.sha256(content).hexdigest()[:12] + suffix
    (folder / "found" / name).write_bytes(content)
    return name


# The child


def _work(options: argparse.Namespace) -> int:
    try:
        import atheris
    except ImportError:
        raise SystemExit("error: this campaign needs atheris\nhelp: pip install --group fuzz") from None
    with atheris.instrument_imports(include=_INSTRUMENTED):
        _import_all()
    from campaign import Settings
    from files import base_files

    settings = Settings(options.seed, options.folder, options)
    for file in base_files(settings):
        if file.suffix == ".pte" and file.stat().st_size <= _LARGEST:
            (options.folder / "corpus" / file.name).write_bytes(file.read_bytes())
    fuzzer = _Fuzzer(settings)
    limits = [f"-max_total_time={max(1, int(options.seconds))}", f"-seed={options.seed + 1}", f"-max_len={_LARGEST}"]
    limits += [f"-runs={options.count}"] if options.count else []
    crash = f"-artifact_prefix={options.folder / 'found'}/"
    arguments = [sys.argv[0], *limits, "-timeout=0", "-rss_limit_mb=0", crash, str(options.folder / "corpus")]
    atheris.Setup(arguments, fuzzer.run, custom_mutator=fuzzer.damaged)
    try:
        atheris.Fuzz()  # Ends the process.
    except BaseException:  # noqa: BLE001 - the process ends
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)  # After an error, the exit handlers of atheris wait forever.


def _import_all() -> None:
    """Import the modules whose branches count, before anything else does."""
    import etdev.inspection.inspect
    import etdev.inspection.report.document
    import etdev.pipeline.relink
    import etdev.program
    import etdev.verification.checks.placement
    import etdev.verification.checks.plan  # noqa: F401


class _Fuzzer:
    """The function that the fuzzer calls with each file, and the one that damages files."""

    def __init__(self, settings: Any) -> None:
        from file_commands import Commands

        self.settings = settings
        self.kinds, self.ends, self.wrong = Counter[str](), Counter[str](), list[str]()
        self.number = 0
        self.saved = time.monotonic()
        self._place = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        every_time, never = 1, 1 << 30
        self.commands = Commands(lambda number, use: random.Random(f"{number} {use}"), 1, Path(self._place.name))
        self.commands.shares = dict.fromkeys(self.commands.shares, never)
        self.commands.shares |= dict.fromkeys(("describe", "relink", "verify"), every_time) | {"page": 20}

    def damaged(self, content: bytes, largest: int, seed: int) -> bytes:
        """Return a file with more damage: of any bytes, of one number, or a mistake in the program."""
        import atheris
        from files import KINDS, encoded

        from etdev.errors import EtdevError
        from etdev.program import Blob, parse
        from program import mutations

        chance, found = random.Random(seed), None
        if chance.random() < _AWARE:
            with suppress(EtdevError):  # Only a valid file has parts that can be found.
                program = parse(Blob(content))
                if not program.execution_plan:
                    return bytes(atheris.Mutate(content, largest))
                kind = chance.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
                found = encoded(mutations.mutated(program, chance)) if kind is None else bytes(kind(content, chance))
        return found if found and len(found) <= largest else bytes(atheris.Mutate(content, largest))

    def run(self, content: bytes) -> None:
        """Read a file, and run the commands if it is accepted."""
        from campaign import Hang, Trial, describe, time_limit
        from file_commands import SECONDS

        from etdev.errors import ProgramError
        from etdev.program import Blob, parse

        self.number += 1
        trial = Trial()
        try:
            with time_limit(SECONDS):
                program = parse(Blob(content), where="damaged")
        except ProgramError as error:
            trial.ends.append("read refused")
            if not error.message.strip():
                trial.wrong.append("read: refused without a word")
        except Hang:
            trial.wrong.append(f"read: no end after {SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"read: {describe(error)}")
        else:
            trial.ends.append("read accepted")
            self.commands.run(self.number, content, program, trial)
        self.ends.update(trial.ends)
        for wrong in trial.wrong:
            self._add(wrong, content)
        if time.monotonic() - self.saved > 1 or trial.wrong or self.number == self.settings.options.count:
            self.saved = time.monotonic()
            counts = {"ends": dict(sorted(self.ends.items())), "wrong": self.wrong}
            (self.settings.folder / "counts.json").write_text(json.dumps(counts))

    def _add(self, wrong: str, content: bytes) -> None:
        from campaign import kind_of

        kind = kind_of(wrong)
        self.kinds[kind] += 1
        if self.kinds[kind] == 1:
            self.wrong.append(f"{_store(self.settings.folder, content, '.pte')}: {wrong}")


if __name__ == "__main__":
    sys.exit(main())
