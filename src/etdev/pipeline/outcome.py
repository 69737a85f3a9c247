"""What became of the targets that had to be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etdev.errors import ConfigError, EtdevError
from etdev.pipeline.finished import Finished
from etdev.pipeline.result import FailedTarget, Obstacle


@dataclass
class Outcome:
    """Targets that are built and verified, and errors that kept others from it."""

    finished: dict[str, Finished] = field(default_factory=dict)
    errors: dict[str, EtdevError] = field(default_factory=dict)

    @property
    def first_error(self) -> EtdevError | None:
        """The one that came first."""
        return next(iter(self.errors.values()), None)

    def failed(self, names: Sequence[str]) -> tuple[FailedTarget, ...]:
        """The errors as a result has them, in the order of these targets."""
        return tuple(_failed(name, self.errors[name]) for name in names if name in self.errors)


def _failed(name: str, error: EtdevError) -> FailedTarget:
    each = error.problems if isinstance(error, ConfigError) else (error,)
    return FailedTarget(
        name=name,
        code=error.exit_code,
        errors=tuple(Obstacle(rule=one.rule, message=one.message, where=one.where, hint=one.hint) for one in each),
    )
