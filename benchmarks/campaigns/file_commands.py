"""The commands on a damaged file that the reader accepted, each under limits of time and memory."""

from __future__ import annotations

import io
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from campaign import Hang, Trial, describe, time_limit

from etdev.errors import EtdevError, LinkError, UnlinkableError
from etdev.program import Program

SECONDS = 10.0
BYTES = 256 << 20
RUN_BYTES = 4 << 30
"""Limit on the growth of this process where it runs a program."""
_SHARES = {"describe": 4, "relink": 10, "verify": 10, "diff": 30, "page": 50, "replay": 75, "native": 250, "stock": 15}
"""Stages, each with a number N: one in N accepted files goes through it; stock: one in N of the relinked ones."""
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


# Memory


def status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> int:
    """Forget the peak memory of this process, and return the memory that it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


class Limits:
    """Runs a stage under the limits, and remembers what it violated."""

    def __init__(self, trial: Trial, size: int) -> None:
        self.trial, self.size = trial, size

    @contextmanager
    def stage(self, name: str, limit: int = BYTES) -> Iterator[None]:
        before, start = reset_peak(), time.monotonic()
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
        grown = status("VmHWM") - before
        self.trial.most[f"MiB of {name}"] = grown / (1 << 20)
        self.trial.most[f"seconds of {name}"] = time.monotonic() - start
        if grown > limit + self.size:
            self.trial.wrong.append(f"{name}: {grown >> 20} MiB for a file of {self.size} bytes")


# Stages


class Commands:
    """The commands on a damaged file that was accepted."""

    def __init__(self, chance: Callable[[int, str], random.Random], every: int, folder: Path) -> None:
        self.chance, self.folder = chance, folder
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
        limits, chance = Limits(trial, len(content)), self.chance(number, "stages")
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
        from etdev.inspection.inspect import inspect_program

        self._printed(render(inspect_program(program, file)[0], io.StringIO(), verbose=True), "describe", trial)

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
