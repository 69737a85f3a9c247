"""The outcome of a build for the targets that had to be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etdev.errors import ConfigError, EtdevError, ExitCode, TargetsError
from etdev.pipeline.builder.finished import Finished
from etdev.pipeline.results.result import FailedTarget, Obstacle


@dataclass
class Outcome:
    """Targets that are built and verified, and errors that prevented others."""

    finished: dict[str, Finished] = field(default_factory=dict)
    errors: dict[str, EtdevError] = field(default_factory=dict)

    def error(self, names: Sequence[str], worst: ExitCode, hint: str) -> EtdevError | None:
        """Return the error that ends the build; None if no target has one.

        If all errors are equal and their exit code is ``worst``, it is the first error; otherwise it combines all of
        them. ``names`` is their order. ``worst`` is the exit code of the worst target, including built ones.
        """
        errors = {name: self.errors[name] for name in names if name in self.errors}
        first = next(iter(errors.values()), None)
        if first is None or (worst == first.exit_code and len({str(error) for error in errors.values()}) == 1):
            return first
        return TargetsError(errors, worst, hint=hint)

    def failed(self, names: Sequence[str]) -> tuple[FailedTarget, ...]:
        """Return the errors in the form of a result, in the order of these targets."""
        return tuple(_failed(name, self.errors[name]) for name in names if name in self.errors)


def _failed(name: str, error: EtdevError) -> FailedTarget:
    each = error.problems if isinstance(error, ConfigError) else (error,)
    return FailedTarget(
        name=name,
        code=error.exit_code,
        errors=tuple(Obstacle(rule=one.rule, message=one.message, where=one.where, hint=one.hint) for one in each),
    )
