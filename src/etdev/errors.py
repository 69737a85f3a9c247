"""Every error that etdev raises on purpose: what it means, its exit code, where it stands, what to do.

Libraries raise these; only :mod:`etdev.cli` turns one into a message and an exit code. Anything else that reaches
the command line is a bug in etdev (exit code 70).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process answers. The numbers are part of the interface and never change their meaning."""

    DONE = 0
    GATE_FAILED = 1
    """A budget, an accuracy or a tolerance that the config states was missed; the artifact is kept."""
    CONFIG = 2
    """Wrong usage of a command, or a wrong config."""
    ENVIRONMENT = 3
    """Something that this machine lacks: a package, a backend, a device, a required check."""
    BUILD_FAILED = 4
    """The build did not give an artifact, or gave one that verification rejected."""
    LOCK_STALE = 5
    DEPLOY_FAILED = 6
    BUG = 70
    INTERRUPTED = 130


class EtdevError(Exception):
    """Base of every expected error.

    ``message`` is a sentence that names the thing and the cause; ``where`` is the place (``file:line:column``, a
    config key, a file), ``hint`` is the remedy.
    """

    exit_code: ExitCode = ExitCode.BUILD_FAILED
    rule: str = "build"
    """Stable identifier of the kind of error: of a stage that failed, its name."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  help: {self.hint}" if self.hint else ""
        return f"{place}{self.message}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        """Errors go from process to process as they are, whatever their constructors take."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[EtdevError], args: tuple[object, ...], state: dict[str, object]) -> EtdevError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(EtdevError):
    """A command was called with arguments that do not fit."""

    exit_code = ExitCode.CONFIG
    rule = "usage"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a config."""

    message: str
    """A sentence: the key, the value found, what was expected."""
    key: str
    """Dotted key, ``targets.cpu.partitioners[0].backend``; empty for a file as a whole."""
    source: str | None = None
    """What states it: a file's path, ``environment variable NAME``, or ``--set``."""
    line: int | None = None
    """1-based line in ``source`` if that is a file."""
    column: int | None = None
    """1-based column, in characters."""
    hint: str | None = None
    rule: str = "config"
    """Stable identifier of the kind of problem (``unknown-key``, ``missing-key``, ``wrong-type``, …)."""

    @property
    def where(self) -> str | None:
        """``file:line:column`` as editors and terminals understand it."""
        if self.source is None or self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column or 1}"


class ConfigError(EtdevError):
    """One or more problems of a config, all that could be found at once."""

    exit_code = ExitCode.CONFIG

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        if not problems:
            raise ValueError("a ConfigError needs at least one problem")
        self.problems = problems
        first = problems[0]
        super().__init__(first.message, where=first.where, hint=first.hint)

    def __str__(self) -> str:
        lines = []
        for problem in self.problems:
            place = f"{problem.where}: " if problem.where else ""
            remedy = f"\n  help: {problem.hint}" if problem.hint else ""
            lines.append(f"{place}{problem.message}{remedy}")
        return "\n".join(lines)


class TargetsError(EtdevError):
    """Several targets of a build came to nothing, each for a reason of its own; or one did, and another ended worse.

    The exit code is that of the worst target.
    """

    def __init__(self, errors: Mapping[str, EtdevError], exit_code: ExitCode, *, hint: str | None = None) -> None:
        if not errors:
            raise ValueError("a TargetsError needs at least one error")
        self.errors = dict(errors)
        """By target."""
        self.exit_code = exit_code
        super().__init__(f"not built: {', '.join(map(repr, self.errors))}", hint=hint)

    def __str__(self) -> str:
        return "\n".join(f"target {name!r}: {error}" for name, error in self.errors.items())


class ProgramError(EtdevError):
    """A ``.pte`` file is malformed, or a program in memory is and cannot be written.

    ``path`` is the place inside the program, in the schema's words: ``execution_plan[0].values[17].tensor.sizes``;
    empty for the file as a whole.
    """

    exit_code = ExitCode.CONFIG
    rule = "program"

    def __init__(self, message: str, *, path: str = "", where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, where=where, hint=hint)
        self.path = path


class UnlinkableError(ProgramError):
    """A program that was read, and whose memory cannot be planned: it overwrites values that it still reads, say."""

    exit_code = ExitCode.BUILD_FAILED


class MissingRequirementError(EtdevError):
    """This machine lacks a package, a backend, a device, or could not run a check that is required."""

    exit_code = ExitCode.ENVIRONMENT
    rule = "environment"


class StageError(EtdevError):
    """A stage of the build failed on the user's model, data or options."""


class LoadError(StageError):
    """The model, its weights or its data could not be loaded."""

    rule = "load"


class MismatchError(LoadError):
    """The config names what is not there, cannot be read, or does not fit: a module, a function, an argument, a method,
    a file of the model. Told without the user's code failing."""

    exit_code = ExitCode.CONFIG


class ExportError(StageError):
    """``torch.export`` refused the model."""

    rule = "export"


class QuantizeError(StageError):
    """The quantization scheme could not be applied."""

    rule = "quantize"


class LowerError(StageError):
    """A partitioner or a backend refused the exported program."""

    rule = "lower"


class EmitError(StageError):
    """The lowered program could not be turned into an ExecuTorch program."""

    rule = "emit"


class LinkError(StageError):
    """Etdev cannot link a program: what it asks for contradicts itself, or its own plan is wrong."""

    rule = "link"


class WriteError(StageError):
    """A file could not be written; whatever stood there before stands there still."""

    rule = "write"


class VerifyError(StageError):
    """Verification could not be carried out (which is not the same as a check that failed)."""

    rule = "verify"


class DeployError(EtdevError):
    """A release could not be brought to its target, or the target refused it; it serves what it served before."""

    exit_code = ExitCode.DEPLOY_FAILED
