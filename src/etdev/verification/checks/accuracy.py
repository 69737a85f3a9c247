"""Check *accuracy*: compute the config's metric on its own data, and compare it with its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from etdev.config.models import Accuracy
from etdev.errors import VerifyError
from etdev.execution.runtimes import Runtime
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Count, uncounted
from etdev.pipeline.project.usercode import UserCode, translated
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.inputs import check_sample
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.jobs import Jobs

_FLOAT_HINT = (
    "check the metric's data and the model's weights; the check `runtime` tells whether the program is at fault"
)
_QUANTIZED_HINT = (
    "compare with the float model, a target without `quantize`; if it holds there, calibrate on more data or on data "
    "more like the metric's"
)


@dataclass
class _Tally:
    """Progress of a metric's calls: the number done, and the total if it is known."""

    count: Count
    done: int = 0
    total: int | None = None

    def announce(self, samples: object) -> None:
        """Add these samples to the total; the total is unknown if they have no length."""
        self.total = max(self.total or 0, self.done) + len(samples) if isinstance(samples, Sized) else None

    def add(self) -> None:
        """Count one more call, and report it."""
        self.done += 1
        self.count(self.done, self.total if self.total is None or self.done <= self.total else None)


class Run:
    """The built program, as the user's metric calls it: ``run(*inputs) -> outputs``.

    State starts as the program's initial state and carries over from call to call.
    """

    def __init__(self, runtime: Runtime, model: ExportedModel, method: str, jobs: Jobs | None, tally: _Tally) -> None:
        self._runtime, self._model, self._method = runtime, model, method
        self._jobs = jobs if jobs is not None and jobs.active else None
        self._tally = tally

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return all outputs of one call as a tuple.

        The inputs that the call changed are left out; a program returns those before its outputs.
        """
        return self._own(self._runtime.call(self._method, self._checked(inputs)))

    def map(self, samples: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the outputs for each tuple of inputs, in order.

        The calls run on several workers if there are any.
        """
        self._tally.announce(samples)
        if self._jobs is None:
            return (self(*sample) for sample in samples)
        return map(self._own, self._jobs.map(self._method, map(self._checked, samples)))

    def _checked(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        problem = check_sample(inputs, self._model.signatures[self._method])
        if problem is not None:
            raise ValueError(f"method {self._method!r} does not take these inputs: {problem}")
        return inputs

    def _own(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Count one more call, and return the method's own outputs, which come last."""
        self._tally.add()
        return outputs[len(outputs) - self._model.outputs[self._method] :]

    def method(self, name: str) -> Run:
        """Return another method of the same program, on the same state."""
        if name not in self._model.signatures:
            raise ValueError(f"the program has no method {name!r}; it has {', '.join(self._model.signatures)}")
        return Run(self._runtime, self._model, name, self._jobs, self._tally)


def check_accuracy(
    project: Project,
    user: UserCode,
    target: str,
    gate: Accuracy,
    model: ExportedModel,
    runtime: Runtime,
    jobs: Jobs | None = None,
    count: Count = uncounted,
) -> CheckResult:
    """Call the metric, and compare its value with the limits of ``gate``.

    Samples that the metric passes to ``run.map`` run on ``jobs``. ``count`` is called for each call.

    Raises :class:`~etdev.errors.VerifyError` if the metric itself fails or does not return a number. If the program
    fails in the runtime, the check fails as for a broken artifact.
    """
    key = ("targets", target, "verify", "accuracy", "fn")
    where = project.where(*key)
    function: Callable[[Run], Any] = user.get(gate.fn, project.base(*key), where)
    method = "forward" if "forward" in model.signatures else next(iter(model.signatures))
    try:
        with translated(user, VerifyError, f"{gate.fn!r} failed", where=where):
            value = _protected(function, Run(runtime, model, method, jobs, _Tally(count)))
    except _ProgramFailedError as error:
        return CheckResult(
            name="accuracy",
            status="failed",
            summary=error.message,
            problems=(error.message,),
            where=where,
            hint=f"give the inputs that {gate.fn!r} calls it with as samples too: the check `runtime` then shows which",
        )
    return _judge(_number(value, gate.fn, where), gate, project, target, quantized=model.scheme is not None)


class _ProgramFailedError(VerifyError):
    """Failure of the program, not of the metric."""


def _protected(function: Callable[[Run], Any], run: Run) -> Any:
    try:
        return function(run)
    except ProgramFailureError as error:
        raise _ProgramFailedError(f"the runtime failed while the metric was computed: {error}") from error


def _number(value: Any, fn: str, where: str) -> float:
    """Return the value as a float; it must be a Python or numpy number, or a tensor of one element."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        shape = getattr(value, "shape", ())
        kind = type(value).__name__ + (f" of shape {list(shape)}" if len(shape) else "")
        raise VerifyError(f"{fn!r} returned {kind}, not a number", where=where) from None


def _judge(value: float, gate: Accuracy, project: Project, target: str, *, quantized: bool) -> CheckResult:
    limits = []
    if gate.min is not None:
        limits.append((value >= gate.min, "min", f"at least {gate.min:g}"))
    if gate.max is not None:
        limits.append((value <= gate.max, "max", f"at most {gate.max:g}"))
    wanted = " and ".join(text for _, _, text in limits)
    text = f"{gate.fn} = {value:.6g} ({wanted})"
    missed = [key for held, key, _ in limits if not held]  # A NaN satisfies no limit.
    if missed:
        problem = f"{gate.fn} gave {value:.6g}, the config asks for {wanted}"
        return CheckResult(
            name="accuracy",
            status="failed",
            gate=True,
            summary=problem,
            problems=(problem,),
            where=project.where("targets", target, "verify", "accuracy", missed[0]),
            hint=_QUANTIZED_HINT if quantized else _FLOAT_HINT,
            value=_json(value),
        )
    return CheckResult(name="accuracy", status="passed", summary=text, value=_json(value))


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
