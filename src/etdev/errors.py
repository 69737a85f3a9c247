"""Expected errors of etdev. Each error has an exit code, and can have a place and a hint.

Libraries raise these errors. Only :mod:`etdev.cli` prints them and ends the process with their exit code. Any other
exception that reaches the command line is a bug in etdev (exit code 70).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of etdev. They are part of etdev's interface, so a number never changes its meaning."""

    DONE = 0
    """The command succeeded."""
    GATE_FAILED = 1
    """The artifact misses a budget, an accuracy target or a tolerance of the config. The file is kept."""
    CONFIG = 2
    """The command was used incorrectly, or the config is wrong."""
    ENVIRONMENT = 3
    """This machine lacks a package, a backend or a device, or could not run a required check."""
    BUILD_FAILED = 4
    """The build produced no artifact, or verification rejected the artifact."""
    LOCK_STALE = 5
    """The inputs or outputs of the build differ from the lock, or there is no lock."""
    DEPLOY_FAILED = 6
    """The release was not deployed. Only an error while switching may have changed the current release."""
    BUG = 70
    """An error in etdev itself."""
    INTERRUPTED = 130
    """The command was interrupted, as by Ctrl-C."""


class EtdevError(Exception):
    """Base class of all expected errors.

    ``message`` is a sentence that states the problem. ``where`` is the place: ``file:line:column``, a config key or a
    file. ``hint`` states the remedy.
    """

    exit_code: ExitCode = ExitCode.BUILD_FAILED
    rule: str = "build"
    """Stable identifier of the kind of error. If a stage failed, this is the name of the stage."""

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
        """Make every error picklable without calling its constructor, so that processes can exchange errors."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[EtdevError], args: tuple[object, ...], state: dict[str, object]) -> EtdevError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(EtdevError):
    """Error for a command with wrong arguments."""

    exit_code = ExitCode.CONFIG
    rule = "usage"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a config."""

    message: str
    """Sentence that states the key, the value found and the value expected."""
    key: str
    """Dotted key, such as ``targets.cpu.partitioners[0].backend``; empty for a whole file."""
    source: str | None = None
    """Source of the value: a file's path, ``environment variable NAME``, or ``--set``."""
    line: int | None = None
    """Line in ``source``, starting at 1, if ``source`` is a file."""
    column: int | None = None
    """Column in characters, starting at 1."""
    hint: str | None = None
    rule: str = "config"
    """Stable identifier of the kind of problem (``unknown-key``, ``missing-key``, ``wrong-type``, …)."""

    @property
    def where(self) -> str | None:
        """Return the place of the problem, as ``file:line:column`` if the source is a file."""
        if self.source is None or self.line is None:
            return self.source
        return f"{self.source}:{self.line}:{self.column or 1}"


class ConfigError(EtdevError):
    """Error for a wrong config. It contains all problems that one run could find."""

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
    """Error for targets that were not built. Each target has its own error.

    The exit code is that of the target with the most severe error.
    """

    def __init__(self, errors: Mapping[str, EtdevError], exit_code: ExitCode, *, hint: str | None = None) -> None:
        if not errors:
            raise ValueError("a TargetsError needs at least one error")
        self.errors = dict(errors)
        """Maps a target to its error."""
        self.exit_code = exit_code
        super().__init__(f"not built: {', '.join(map(repr, self.errors))}", hint=hint)

    def __str__(self) -> str:
        return "\n".join(f"target {name!r}: {error}" for name, error in self.errors.items())


class ProgramError(EtdevError):
    """Error for a malformed ``.pte`` file, or for a program in memory that cannot be written.

    ``path`` is the place inside the program, in the schema's terms: ``execution_plan[0].values[17].tensor.sizes``.
    ``path`` is empty if the error concerns the whole file.
    """

    exit_code = ExitCode.CONFIG
    rule = "program"

    def __init__(self, message: str, *, path: str = "", where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, where=where, hint=hint)
        self.path = path


class UnlinkableError(ProgramError):
    """Error for a valid file whose memory cannot be planned, because a method overwrites values that it reads later."""

    exit_code = ExitCode.BUILD_FAILED


class MissingRequirementError(EtdevError):
    """Error for a package, a backend or a device that this machine lacks, or a required check that could not run."""

    exit_code = ExitCode.ENVIRONMENT
    rule = "environment"


class StageError(EtdevError):
    """Error for a stage that failed on the user's model, data or options."""


class LoadError(StageError):
    """Error for a model, weights or data that could not be loaded."""

    rule = "load"


class MismatchError(LoadError):
    """Error for a config key that refers to something missing, unreadable or unsuitable.

    Keys refer to modules, functions, arguments, methods and files. etdev itself finds the error; the user's code does
    not raise it.
    """

    exit_code = ExitCode.CONFIG


class ExportError(StageError):
    """Error for a model that ``torch.export`` refused."""

    rule = "export"


class QuantizeError(StageError):
    """Error for a quantization scheme that could not be applied."""

    rule = "quantize"


class LowerError(StageError):
    """Error for an exported program that a partitioner or a backend refused."""

    rule = "lower"


class EmitError(StageError):
    """Error for a lowered program that could not be emitted as an ExecuTorch program."""

    rule = "emit"


class LinkError(StageError):
    """Error for a program that cannot be linked, for example because settings contradict each other."""

    rule = "link"


class BanksError(LinkError):
    """Error for tensors that cannot be in the memory banks that a target requires."""


class CapacityError(BanksError):
    """Error for tensors that do not fit into the memory banks of a target. No file is written.

    ``remedies`` are the alternatives that the hint lists. ``ends_in_use`` is True if inputs or outputs are in use at
    the peak. ``at_delegate`` is True if the peak is at a call of a delegate. ``exceeds_all`` is True if the tensors
    need more memory than all banks have together.
    """

    exit_code = ExitCode.GATE_FAILED

    def __init__(
        self,
        message: str,
        *,
        remedies: Sequence[str],
        ends_in_use: bool = False,
        at_delegate: bool = False,
        exceeds_all: bool = False,
        where: str | None = None,
    ) -> None:
        super().__init__(message, where=where, hint=", or ".join(remedies))
        self.remedies = tuple(remedies)
        self.ends_in_use = ends_in_use
        self.at_delegate = at_delegate
        self.exceeds_all = exceeds_all

    def with_remedies(self, remedies: Sequence[str], where: str | None = None) -> CapacityError:
        """Return a copy of the error with other remedies. ``where`` is a place in the config."""
        return CapacityError(
            self.message,
            remedies=remedies,
            ends_in_use=self.ends_in_use,
            at_delegate=self.at_delegate,
            exceeds_all=self.exceeds_all,
            where=where,
        )


class WriteError(StageError):
    """Error for a file that could not be written. If the file existed before, it has not changed."""

    rule = "write"


class RunnerError(StageError):
    """Error for a program for which no C++ project can be written."""

    rule = "runner"


class VerifyError(StageError):
    """Error for a verification that could not run. A failed check does not raise this error."""

    rule = "verify"


class DeployError(EtdevError):
    """Error for a release that was not deployed.

    The current release has not changed, unless the error occurred while switching to the new release.
    """

    exit_code = ExitCode.DEPLOY_FAILED


def describe_exception(error: BaseException) -> str:
    """Return a text on an exception that other code raised: its type, and the first line of its message."""
    first = next(iter(str(error).strip().splitlines()), "no message")
    return f"{type(error).__name__}: {first}"
