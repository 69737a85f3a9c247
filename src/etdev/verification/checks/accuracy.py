"""Check *accuracy*: computes the user's metric, and compares the result with the config's limits.

The metric uses its own data, not the config's samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from etdev.config.models import Accuracy
from etdev.errors import MissingRequirementError, VerifyError
from etdev.execution.float_ends import Ends, float_outputs, quantized_inputs
from etdev.execution.runtimes import Runtime, open_replay
from etdev.pipeline.project.progress import Count
from etdev.pipeline.project.usercode import translated
from etdev.pipeline.results.reasons import NO_METRIC
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.eager import Session
from etdev.pipeline.stages.inputs import Call, check_sample
from etdev.program import Program
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.advice import more_accurate
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.jobs import Jobs, jobs_for
from etdev.verification.subject import BuiltTarget, Subject
from etdev.verification.tosa.own_ops import own_ops_executors

_FLOAT_HINT = "check the metric's data and the model's weights; the check `runtime` shows whether the program is wrong"


@dataclass
class _Tally:
    """Progress of a metric: the number of calls made, and the total number of calls if known."""

    count: Count
    done: int = 0
    total: int | None = None

    def announce(self, samples: object) -> None:
        """Add the number of ``samples`` to the total. If ``samples`` has no length, set the total to unknown."""
        self.total = max(self.total or 0, self.done) + len(samples) if isinstance(samples, Sized) else None

    def add(self) -> None:
        """Increment the number of calls, and report the new number."""
        self.done += 1
        self.count(self.done, self.total if self.total is None or self.done <= self.total else None)


class Run:
    """The built program as a function for the user's metric: ``run(*inputs) -> outputs``.

    Inputs and outputs are floats, even if the program takes and returns quantized integers. The first call uses the
    program's initial state. Each later call continues from the state of the previous call.
    """

    def __init__(
        self,
        runtime: Runtime | _FloatModel,
        model: ExportedModel,
        method: str,
        jobs: Jobs | None,
        tally: _Tally,
        ends: Ends,
    ) -> None:
        self._runtime, self._model, self._method, self._ends = runtime, model, method, ends
        self._jobs = jobs if jobs is not None and jobs.active else None
        self._tally = tally

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Call the program, and return the outputs of the model as a tuple.

        The built program also returns the inputs that the call changed. These inputs precede the model's outputs and
        are omitted here.
        """
        return self._own(self._runtime.call(self._method, self._checked(inputs)))

    def map(self, samples: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Call the program for each tuple of inputs, and return an iterator over the outputs, in order.

        If there are several workers, the workers make the calls in parallel.
        """
        self._tally.announce(samples)
        if self._jobs is None:
            return (self(*sample) for sample in samples)
        return map(self._own, self._jobs.map(self._method, map(self._checked, samples)))

    def _checked(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        problem = check_sample(inputs, self._model.signatures[self._method])
        if problem is not None:
            raise ValueError(f"method {self._method!r} does not accept these inputs: {problem}")
        return quantized_inputs(self._ends, self._method, inputs)

    def _own(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Count a call, and return the model's own outputs as floats. They are the last elements of ``outputs``."""
        self._tally.add()
        outputs = float_outputs(self._ends, self._method, outputs)
        return outputs[len(outputs) - self._model.outputs[self._method] :]

    def method(self, name: str) -> Run:
        """Return a function that calls another method of the same program on the same state."""
        if name not in self._model.signatures:
            raise ValueError(f"the program has no method {name!r}; its methods are {', '.join(self._model.signatures)}")
        return Run(self._runtime, self._model, name, self._jobs, self._tally, self._ends)


class _FloatModel:
    """The float model in eager PyTorch, as a runtime for :class:`Run`."""

    def __init__(self, built: BuiltTarget, where: str) -> None:
        self._session = Session(built.project, built.user, built.float_model)
        self._where = where

    def call(self, method: str, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._session.compute_once(Call(method, inputs), "while the metric was computed", self._where))


class AccuracyCheck(Check):
    """Does the user's metric, on the metric's own data, meet the config's limits?"""

    name = "accuracy"
    needs = (Need.CONFIG, Need.PROGRAM)

    def applies(self, subject: Subject) -> str | None:
        """Return the reason why the metric is not computed; None if it is computed.

        The metric calls the program in the stock runtime. If the stock runtime cannot run the program, the metric uses
        the replay. In that case, the check *replay* must have passed.
        """
        obstacle = subject.stock_obstacle
        if obstacle is not None and subject.results["replay"].status != "passed":
            return obstacle
        if subject.built.settings.accuracy is None:
            return NO_METRIC
        return "the check `runtime` failed" if subject.broken("runtime") else None

    def run(self, subject: Subject) -> CheckResult:
        """Call the metric, and compare its value with the config's limits."""
        built = subject.built
        if subject.stock_obstacle is None:
            return check_accuracy(built, subject.program, subject.stock, alone=False)
        try:
            own = own_ops_executors(subject.program, built.records)
            with open_replay(subject.device_map, built.inplace, others=own) as replay:
                return check_accuracy(built, subject.program, replay, alone=True)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint, lacking=True)


def check_accuracy(built: BuiltTarget, program: Program, runtime: Runtime, *, alone: bool) -> CheckResult:
    """Compute the metric with ``runtime``, and compare its value with the config's limits.

    ``runtime`` is the stock runtime if ``alone`` is False, and the replay if ``alone`` is True. The replay is for
    programs that the stock runtime cannot run. If the program fails in the runtime, the check fails, because the file
    is broken. Raises :class:`~etdev.errors.VerifyError` if the metric itself fails or does not return a number.
    """
    project, user, model, gate = built.project, built.user, built.reference, built.settings.accuracy
    assert gate is not None
    where = built.place("verify", "accuracy", "fn")
    built.load(runtime, shared=project.config.model.share_state)
    with jobs_for(built, program, alone=alone) as jobs:
        function = user.get(gate.fn, project.base("targets", built.target, "verify", "accuracy", "fn"), where)
        method = "forward" if "forward" in model.signatures else next(iter(model.signatures))
        note = ", computed by the replay" if alone else ""
        try:
            with translated(user, VerifyError, f"{gate.fn!r} failed", where=where):
                value = _protected(function, Run(runtime, model, method, jobs, _Tally(built.count), built.ends))
                base = None
                if gate.max_drop is not None or gate.max_rise is not None:
                    floats = _FloatModel(built, where)
                    base = function(Run(floats, built.float_model, method, None, _Tally(built.count), {}))
        except _ProgramFailedError as error:
            hint = f"add to the samples the inputs with which {gate.fn!r} calls the program: the check `runtime` then "
            remedy = built.remedy(where, f"{hint}shows which inputs fail")
            return failed("accuracy", (error.message,), summary=f"{error.message}{note}{jobs.effect}", **remedy)
        found = _number(value, gate.fn, where)
        return _judge(built, gate, found, None if base is None else _number(base, gate.fn, where), note + jobs.effect)


class _ProgramFailedError(VerifyError):
    """A failure of the program, not of the metric."""


def _protected(function: Callable[[Run], Any], run: Run) -> Any:
    try:
        return function(run)
    except ProgramFailureError as error:
        raise _ProgramFailedError(f"the runtime failed while the metric was computed: {error}") from error


def _number(value: Any, fn: str, where: str) -> float:
    """Return a metric's value as a float; raise an error unless it is a number or a tensor of one element."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        shape = getattr(value, "shape", ())
        kind = type(value).__name__ + (f" of shape {list(shape)}" if len(shape) else "")
        raise VerifyError(f"{fn!r} returned {kind}, not a number", where=where) from None


def _judge(built: BuiltTarget, gate: Accuracy, value: float, base: float | None, note: str) -> CheckResult:
    """Compare a metric with its limits. ``base`` is the metric of the float model, None if no limit refers to it."""
    limits = []
    if gate.min is not None:
        limits.append((value >= gate.min, "min", f"at least {gate.min:g}"))
    if gate.max is not None:
        limits.append((value <= gate.max, "max", f"at most {gate.max:g}"))
    if gate.max_drop is not None and base is not None:
        text = f"at most {gate.max_drop:g} below the float model's {base:.6g}"
        limits.append((base - value <= gate.max_drop, "max_drop", text))
    if gate.max_rise is not None and base is not None:
        text = f"at most {gate.max_rise:g} above the float model's {base:.6g}"
        limits.append((value - base <= gate.max_rise, "max_rise", text))
    wanted = " and ".join(text for _, _, text in limits)
    missed = [key for held, key, _ in limits if not held]  # A NaN does not meet any limit.
    if not missed:
        return passed("accuracy", f"{gate.fn} = {value:.6g} ({wanted}){note}", value=_json(value))
    problem = f"{gate.fn} returned {value:.6g}, but the config requires {wanted}"
    name = built.project.config.targets[built.target].quantize
    hint = _FLOAT_HINT if name is None else more_accurate(built.project.config.quantize[name])
    if name is not None and base is None:
        hint = f"check a target without `quantize`: if it meets the limit, {hint}"
    remedy = built.remedy(built.place("verify", "accuracy", missed[0]), hint)
    return failed("accuracy", (problem,), gate=True, summary=problem + note, value=_json(value), **remedy)


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
