"""Results and errors of the targets that a build did not find in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etdev.errors import ConfigError, EtdevError, ExitCode, TargetsError
from etdev.pipeline.builder.finished import Finished
from etdev.pipeline.results.result import FailedTarget, Obstacle


@dataclass
class Outcome:
    """Targets that were built and verified, and the errors of targets that failed."""

    finished: dict[str, Finished] = field(default_factory=dict)
    errors: dict[str, EtdevError] = field(default_factory=dict)

    def error(self, names: Sequence[str], worst: ExitCode, hint: str) -> EtdevError | None:
        """Return the error that ends the build; None if every target was built.

        If all errors are equal and have the exit code ``worst``, return the first error. Otherwise return an error that
        combines all of them, with ``hint``. ``names`` is the order of the targets. ``worst`` is the most severe exit
        code of all targets, including the targets that were built.
        """
        errors = {name: self.errors[name] for name in names if name in self.errors}
        first = next(iter(errors.values()), None)
        if first is None or (worst == first.exit_code and len({str(error) for error in errors.values()}) == 1):
            return first
        return TargetsError(errors, worst, hint=hint)

    def failed(self, names: Sequence[str]) -> tuple[FailedTarget, ...]:
        """Return the errors of the targets in ``names``, in the order of ``names``."""
        return tuple(_failed(name, self.errors[name]) for name in names if name in self.errors)


def _failed(name: str, error: EtdevError) -> FailedTarget:
    each = error.problems if isinstance(error, ConfigError) else (error,)
    return FailedTarget(
        name=name,
        code=error.exit_code,
        errors=tuple(Obstacle(rule=one.rule, message=one.message, where=one.where, hint=one.hint) for one in each),
    )
