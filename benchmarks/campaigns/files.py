"""Damaged ``.pte`` and ``.ptd`` files through every command that reads a file.

Each trial damages one file: random bytes, one number of a table, truncation, places and sizes of segments, or a program
with mistakes that is a valid flatbuffer. It is read and checked. Shares of the accepted files are described, relinked,
compared, verified, made a page of, and run in the interpreter, the native runtime and the stock runtime.

Demanded: no error but an ``EtdevError``, no stage over 10 s, at most 256 MiB over the file's size, no crash, no control
character in a text. A stage that runs the program may take more memory, because the file says how much. A relinked file
has the same bits as the file before in the stock runtime, if that one runs there and reads no unwritten bytes.

    python benchmarks/campaigns/files.py [--count N] [--seconds S] [--seed N] [--start N] [--every N] [--files FILE ...]
"""

from __future__ import annotations

import argparse
import io
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from campaign import Hang, Run, Settings, Trial, describe, main, time_limit

from etdev.errors import EtdevError, LinkError, ProgramError, UnlinkableError
from etdev.program import Blob, Program, flat_tensor, parse, write, writer
from program import damage, hand, mutations

SECONDS = 10.0
BYTES = 256 << 20
RUN_BYTES = 4 << 30
"""Limit on the growth of this process where it runs a program."""
MADE = (
    "portable", "branches", "loops", "state", "methods", "shared", "dynamic", "external", "xnnpack", "xnnpack_inline",
    "xnnpack_int8",
)  # fmt: skip
_KINDS = (
    (damage.random_bytes, 30), (damage.field_aware, 25), (damage.truncated, 5), (damage.extents, 10), (None, 30),
)  # fmt: skip
_DATA = 10
"""One file in so many is a data file."""
_SHARES = {"describe": 4, "relink": 10, "verify": 10, "diff": 30, "page": 50, "replay": 75, "native": 250, "stock": 15}
"""Stages, each with a number N: one in N accepted files goes through it; stock: one in N of the relinked ones."""
_BATCH = 50
"""Reads between two looks at the memory that they took."""
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def base_files(settings: Settings) -> list[Path]:
    """Return the files to damage; make them if the folder lacks them."""
    if settings.options.files:
        return [Path(file) for file in settings.options.files]
    folder = settings.folder / "base"
    if not (folder / "done").exists():
        from program import real
        from support.on_devices import two_devices

        folder.mkdir(exist_ok=True)
        (folder / "external").exists() and [file.unlink() for file in (folder / "external").iterdir()]
        (folder / "external").exists() and (folder / "external").rmdir()
        for name, program in {"everything": hand.everything(), "loop": hand.loop(), "devices": two_devices()}.items():
            write(program, folder / f"{name}.pte")
        for name in MADE:
            getattr(real, name)(folder)
        (folder / "done").touch()
    return sorted([*folder.rglob("*.pte"), *folder.rglob("*.ptd")])


class _Files:
    """The files to damage, and the damaged file of each number."""

    def __init__(self, files: list[Path], seed: int) -> None:
        self.seed = seed
        self.programs = [(file, file.read_bytes()) for file in files if file.suffix == ".pte"]
        self.data = [(file, file.read_bytes()) for file in files if file.suffix == ".ptd"]
        self.parsed = {file: parse(Blob(content)) for file, content in self.programs}

    def chance(self, number: int, use: str) -> random.Random:
        return random.Random(f"{self.seed} {number} {use}")

    def damaged(self, number: int, most: int = 3) -> tuple[Path, str, bytes | None]:
        """Return the original, the kind of damage, and the content; None if a mistake cannot be encoded."""
        chance = self.chance(number, "damage")
        is_data = bool(self.data) and not chance.randrange(_DATA)
        file, content = chance.choice(self.data if is_data else self.programs)
        kind = chance.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])[0]
        if kind is None and not is_data:
            return file, "mutated", _encoded(mutations.mutated(self.parsed[file], chance, most))
        kind = kind or damage.field_aware
        return file, kind.__name__, bytes(kind(content, chance))


def _encoded(program: Program) -> bytes | None:
    """Return the program's file, unchecked; None if a field does not hold what it should."""
    with mock.patch.object(writer, "check_program"):
        try:
            return writer.serialize(program)
        except (ProgramError, OverflowError, ValueError):
            return None


# Memory


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> int:
    """Forget the peak memory of this process, and return the memory that it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


class _Limits:
    """Runs a stage under the limits, and remembers what it violated."""

    def __init__(self, trial: Trial, size: int) -> None:
        self.trial, self.size = trial, size

    @contextmanager
    def stage(self, name: str, limit: int = BYTES) -> Iterator[None]:
        before, start = _reset_peak(), time.monotonic()
        try:
            with time_limit(SECONDS):
                yield
        except Hang:
            self.trial.wrong.append(f"{name}: no end after {SECONDS:g} s")
        except EtdevError as error:
            if not (error.message and error.message.strip()):
                self.trial.wrong.append(f"{name}: refused without a word")
            self.trial.ends.append(f"{name} refused")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.trial.wrong.append(f"{name}: {describe(error)}")
        else:
            self.trial.ends.append(f"{name} done")
        grown = _status("VmHWM") - before
        self.trial.most[f"MiB of {name}"] = grown / (1 << 20)
        self.trial.most[f"seconds of {name}"] = time.monotonic() - start
        if grown > limit + self.size:
            self.trial.wrong.append(f"{name}: {grown >> 20} MiB for a file of {self.size} bytes")


# Stages


class _Commands:
    """The commands on a damaged file that was accepted."""

    def __init__(self, files: _Files, every: int, folder: Path) -> None:
        self.files, self.folder = files, folder
        self.shares = {name: max(1, share // every) for name, share in _SHARES.items()}
        self._open = ExitStack()
        self._stock: Any = None
        self._warm_up()

    def _warm_up(self) -> None:
        """Start what is slow to start, and is not part of any stage."""
        from etdev.runtime.interpreter.cortex_m import find_cortex_m
        from etdev.runtime.native import host_executable
        from etdev.runtime.stock import StockRuntime

        find_cortex_m("cortex_m::quantized_add.out")  # Imports many modules of ExecuTorch.
        self._has_native = False
        with suppress(EtdevError):
            host_executable()
            self._has_native = True
        self._stock = self._open.enter_context(StockRuntime(limit=6 * SECONDS))  # It starts again after each crash.
        self._stock.operators  # noqa: B018 - waits for its imports

    def run(self, number: int, content: bytes, program: Program, trial: Trial, data: tuple[Path, ...] = ()) -> None:
        """Run all commands whose turn it is."""
        limits, chance = _Limits(trial, len(content)), self.files.chance(number, "stages")
        turn = {name: not chance.randrange(share) for name, share in self.shares.items()}
        file, linked = self.folder / "damaged.pte", self.folder / "linked.pte"
        for path in (file, linked):  # Anew: a file that is mapped must not change.
            path.unlink(missing_ok=True)
        file.write_bytes(content)
        if turn["describe"]:
            with limits.stage("describe"):
                self._describe(program, file, trial)
        if turn["relink"]:
            with limits.stage("relink"):
                self._relink(file, linked, trial, data)
        if turn["diff"]:
            with limits.stage("diff"):
                self._diff(file, linked if linked.exists() else file, trial)
        if turn["verify"]:
            with limits.stage("verify"):
                self._verify(program, trial)
        if turn["page"]:
            with limits.stage("page"):
                self._page(file, data)
        if turn["replay"]:
            with limits.stage("replay", RUN_BYTES):
                self._replay(program, trial)
        if turn["native"] and self._has_native and not data:
            with limits.stage("native", RUN_BYTES):
                self._native(file, program, trial)
        if linked.exists() and turn["relink"] and turn["stock"]:
            with limits.stage("stock", RUN_BYTES):
                self._compare(file, linked, program, trial, data)

    def _printed(self, text: str, name: str, trial: Trial) -> None:
        if found := _CONTROL.search(text):
            trial.wrong.append(f"{name}: {found[0]!r} in its text")

    def _describe(self, program: Program, file: Path, trial: Trial) -> None:
        from etdev.cli.inspect import render
        from etdev.inspection.inspect import describe as described

        self._printed(render(described(program, file), io.StringIO(), verbose=True), "describe", trial)

    def _relink(self, file: Path, linked: Path, trial: Trial, data: tuple[Path, ...]) -> None:
        from etdev.cli.relink import render
        from etdev.pipeline.relink import relink

        try:
            result = relink(file, linked, data=data)
        except UnlinkableError:
            raise
        except LinkError as error:
            # The link was not what the program is: etdev found its own mistake.
            trial.wrong.append(f"relink: wrong link: {error.message[:300]}")
            return
        self._printed(render(result, io.StringIO(), verbose=True), "relink", trial)

    def _diff(self, one: Path, other: Path, trial: Trial) -> None:
        from etdev.cli.diff import render_text
        from etdev.inspection.diff import diff

        self._printed(render_text(diff(one, other), io.StringIO()), "diff", trial)

    def _verify(self, program: Program, trial: Trial) -> None:
        from etdev.verification.checks.placement import check_placement
        from etdev.verification.checks.plan import check_alone

        plan, placement = check_alone(program, foreign=True), check_placement(program)
        trial.ends += [f"plan {plan.status}", f"placement {placement.status}"]

    def _page(self, file: Path, data: tuple[Path, ...]) -> None:
        from etdev.inspection.report.document import file_page

        page = file_page(file, data)
        page.encode()
        assert page.rstrip().endswith("</html>")

    def _replay(self, program: Program, trial: Trial) -> None:
        trial.ends.append(f"replay {_replayed(program)}")

    def _native(self, file: Path, program: Program, trial: Trial) -> None:
        from etdev.execution.native import open_native
        from etdev.runtime.stock import ProgramFailureError

        try:
            with own_limit(), open_native(program, _device_map()) as runtime:
                runtime._child.limit = SECONDS
                runtime.load(file)
                for plan, inputs in _inputs(program):
                    runtime.call(plan, inputs, fresh=True)
        except ProgramFailureError as error:
            trial.ends.append(f"native: {type(error).__name__}")

    def _compare(self, file: Path, linked: Path, program: Program, trial: Trial, data: tuple[Path, ...]) -> None:
        from etdev.verification.compare import same_bits

        before, again = self._outputs(file, program, data), self._outputs(file, program, data)
        after = self._outputs(linked, program, ())
        if isinstance(before, str):
            trial.ends.append(f"stock {before} before, {after if isinstance(after, str) else 'runs'} after")
            return
        if _replayed(program) != "passed":
            trial.ends.append("stock: outputs depend on unwritten bytes, or the replay cannot say")
            return
        if isinstance(after, str) or isinstance(again, str):
            trial.wrong.append(f"stock: the file runs, the relinked one is {after}")
            return
        pairs = zip(before, after, again, strict=True)
        if all(same_bits(one, two) or not same_bits(one, three) for one, two, three in pairs):
            trial.ends.append("stock same before and after")
        else:
            trial.wrong.append("stock: other outputs after the relink")

    def _outputs(self, file: Path, program: Program, data: tuple[Path, ...]) -> list[Any] | str:
        """Return all outputs of two calls of each method in the stock runtime, or how it failed."""
        from etdev.runtime.stock import ProgramFailureError
        from etdev.runtime.stock.client import RuntimeCrashError

        found: list[Any] = []
        try:
            with own_limit():
                self._stock.load(file, data=data, shared=True)
                for name, inputs in _inputs(program):
                    found += [*self._stock.call(name, inputs, fresh=True), *self._stock.call(name, inputs)]
        except RuntimeCrashError:
            return "crashed"
        except ProgramFailureError:
            return "refused"
        return found


@contextmanager
def own_limit() -> Iterator[None]:
    """Do not let the alarm interrupt the conversation with a runtime, which has a limit of its own."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.1))


def _device_map() -> Any:
    from etdev.runtime.device_map import parse_device_map

    return parse_device_map("cuda:0=sim,cuda:1=sim")


def _inputs(program: Program) -> Iterator[tuple[str, tuple[Any, ...]]]:
    from etdev.execution.random_inputs import random_inputs

    for plan in program.execution_plan:
        yield plan.name, random_inputs(plan, 1)


def _replayed(program: Program) -> str:
    from etdev.runtime.interpreter.settings import Bounds
    from etdev.verification import standalone_replay

    # Endless loops end earlier than in commands.
    with mock.patch.object(standalone_replay, "_BOUNDS", Bounds(steps=1_000, memory=1 << 28)):
        return standalone_replay.replay_alone(program, _device_map()).status


class _Campaign:
    """Trials of damaged files."""

    def __init__(self, settings: Settings) -> None:
        self.files = _Files(base_files(settings), settings.seed)
        self._place = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.commands = _Commands(self.files, settings.options.every, Path(self._place.name))
        self.since: list[int] = []
        import torch  # noqa: F401 - its memory is not that of the first stage that needs it

        resource.setrlimit(resource.RLIMIT_AS, (32 << 30, 32 << 30))
        self.before = _reset_peak()

    def run(self, number: int) -> Trial:
        origin, kind, content = self.files.damaged(number)
        trial = Trial(ends=[kind])
        if content is None:
            trial.ends.append("not encoded")
            return trial
        accepted = self._read(origin, content, trial)
        self._look_at_memory(number, trial)
        if accepted is not None:
            data = ()
            if origin.suffix == ".ptd":
                data, content = self._with_data(origin, content)
                accepted = parse(Blob(content))
            self.commands.run(number, content, accepted, trial, data)
            self.before = _reset_peak()
        if trial.wrong:
            trial.files = {origin.suffix: self._smaller(number, origin, kind, trial)}
        return trial

    def _read(self, origin: Path, content: bytes, trial: Trial) -> Program | None:
        """Read and check a file. Return a program if the commands shall run on it."""
        start = time.monotonic()
        try:
            with time_limit(SECONDS):
                read = flat_tensor.parse if origin.suffix == ".ptd" else parse
                found: Any = read(Blob(content), where="damaged")
        except ProgramError as error:
            trial.ends.append(f"read {origin.suffix} refused")
            if not error.message.strip():
                trial.wrong.append("read: refused without a word")
            return None
        except Hang:
            trial.wrong.append(f"read: no end after {SECONDS:g} s")
            return None
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"read: {describe(error)}")
            return None
        finally:
            trial.most["seconds of read"] = time.monotonic() - start
        trial.ends.append(f"read {origin.suffix} accepted")
        return found

    def _with_data(self, origin: Path, content: bytes) -> tuple[tuple[Path, ...], bytes]:
        """Return the damaged data file, and the program that needs it."""
        place = self.commands.folder / "damaged.ptd"
        place.unlink(missing_ok=True)
        place.write_bytes(content)
        owners = [whole for file, whole in self.files.programs if file.parent == origin.parent]
        return (place,), owners[0]

    def _look_at_memory(self, number: int, trial: Trial) -> None:
        """Look at the memory of some reads at once; if they took too much, at each of them."""
        self.since.append(number)
        if len(self.since) < _BATCH:
            return
        grown = _status("VmHWM") - self.before
        trial.most["MiB of read"] = grown / (1 << 20)
        if grown > BYTES:
            for other in self.since:
                origin, _, content = self.files.damaged(other)
                before = _reset_peak()
                if content is not None:
                    with suppress(ProgramError):
                        (flat_tensor.parse if origin.suffix == ".ptd" else parse)(Blob(content))
                if _status("VmHWM") - before > BYTES:
                    trial.wrong.append(f"read: {(_status('VmHWM') - before) >> 20} MiB for trial {other}")
        self.since, self.before = [], _reset_peak()

    def _smaller(self, number: int, origin: Path, kind: str, trial: Trial) -> bytes:
        """Return the file with as little damage as shows the same."""
        _, _, content = self.files.damaged(number)
        assert content is not None
        shows = partial(self._shows, number, origin, trial.wrong[0].partition(" (")[0].partition(":")[2][:40])
        if kind == "mutated":
            for most in (1, 2):
                _, _, other = self.files.damaged(number, most)
                if other is not None and shows(other):
                    return other
            return content
        original = dict([*self.files.programs, *self.files.data])[origin]
        return _fewer_bytes(original, content, shows)

    def _shows(self, number: int, origin: Path, wrong: str, content: bytes) -> bool:
        trial = Trial()
        accepted = self._read(origin, content, trial)
        if accepted is not None and origin.suffix == ".pte":
            self.commands.run(number, content, accepted, trial)
        return any(wrong in each for each in trial.wrong)


def _fewer_bytes(original: bytes, content: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Return content with as many bytes of the original as possible that still shows what is wrong."""
    if len(original) != len(content):
        return content
    for position in [at for at, pair in enumerate(zip(original, content, strict=True)) if pair[0] != pair[1]]:
        other = content[:position] + original[position : position + 1] + content[position + 1 :]
        if shows(other):
            content = other
    return content


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", nargs="*", metavar="FILE", help="files to damage instead of the usual ones")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run stages N times as often as usual")


def make(settings: Settings) -> Run:
    """Return the trial of each number."""
    return _Campaign(settings).run


if __name__ == "__main__":
    sys.exit(main("files", make, doc=__doc__, count=1_000_000, hang=120, options=_options))
