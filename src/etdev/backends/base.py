"""Interface of a backend: name, typed options, compile specs, device types, and the method that makes a partitioner.

Loading a backend's module must import neither torch nor executorch, so that ``validate`` and ``doctor`` work on any
machine. :meth:`Backend.partitioner` imports the packages that it needs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from etdev import compat
from etdev.config.table import Table
from etdev.errors import LowerError
from etdev.extras import install_command

if TYPE_CHECKING:
    from etdev.program.sidecar.records import DelegateRecord

CompileSpecValue = int | str | bytes
BUILD_EXTRA = install_command("build")


class NoOptions(Table):
    """Table ``options`` for a backend that has no options. The table must be empty."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Result of testing if a backend can lower programs on this machine."""

    available: bool
    reason: str
    """Text that names the packages found, such as ``executorch 1.5.1``, or the missing package."""
    remedy: str | None = None
    """Command that makes the backend available. None if the backend is available or no command helps."""


@dataclass(frozen=True, slots=True)
class SpecIssue:
    """Problem with a compile spec that the backend refuses."""

    key: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class OptionIssue:
    """Problem with an option that has the right type but an invalid value."""

    path: tuple[str | int, ...]
    """Keys that lead from the backend's ``options`` to the value, such as ``("ops", 0)``."""
    message: str
    hint: str | None = None


class OptionError(LowerError):
    """Error for an invalid option that only the lowering of a model can detect, not the checks of the config."""

    def __init__(self, issue: OptionIssue) -> None:
        super().__init__(issue.message, hint=issue.hint)
        self.path = issue.path


@runtime_checkable
class ChecksOptions(Protocol):
    """Optional protocol of a backend that checks more than the types of its options."""

    def check_options(self, options: Any) -> Iterable[OptionIssue]:
        """Return the problems of ``options``, an instance of :attr:`Backend.options`. Import no large packages."""


@runtime_checkable
class CompilesApart(Protocol):
    """Optional protocol of a backend that can compile the methods of a program independently of each other.

    ``etdev build -j`` may compile such methods in several processes. Backends that compile all methods together
    (``preprocess_multimethod``) do not implement this protocol.
    """

    @property
    def methods_apart(self) -> bool:
        """True if the blobs of a method do not depend on the program's other methods."""


@runtime_checkable
class UsesPackages(Protocol):
    """Optional protocol of a backend whose blobs depend on further packages.

    These are packages other than torch, executorch and the package of the backend.
    """

    @property
    def packages(self) -> tuple[str, ...]:
        """Distribution names of the further packages. The lock and the cache key contain the packages' versions."""


@runtime_checkable
class ReadsFiles(Protocol):
    """Optional protocol of a backend with options that are paths of files.

    The files are inputs of the build. A relative path is relative to the config file that states it.
    """

    @property
    def file_options(self) -> tuple[str, ...]:
        """Names of the options that are paths of files. The value of such an option is text, or None for no file."""

    def check_files(self, options: Any) -> Iterable[OptionIssue]:
        """Return the problems of ``options``, in which all paths are absolute paths of existing files.

        etdev calls this function before any slow step. Import no large packages.
        """


@runtime_checkable
class RunsElsewhere(Protocol):
    """Optional protocol of a backend whose delegates cannot run in any runtime that a user can install on a host."""

    @property
    def runs_elsewhere(self) -> str:
        """Sentence on where the delegates run instead, without a final dot. `etdev doctor` shows it."""


@runtime_checkable
class RecordsDelegates(Protocol):
    """Optional protocol of a backend whose compiler reports facts about a delegate that the blob does not contain."""

    def recording(self, options: Sequence[Any]) -> AbstractContextManager[Mapping[str, DelegateRecord]]:
        """Return a context manager that collects a record of each delegate that is compiled in its block.

        etdev lowers the target's model in the block. ``options`` has one item for each of the target's partitioners
        with this backend. The key of a record is the SHA-256 of the delegate's blob.
        """


@runtime_checkable
class ChangesLowering(Protocol):
    """Optional protocol of a backend that changes ExecuTorch's own code while models are lowered to it."""

    def lowering(self) -> AbstractContextManager[None]:
        """Return a context manager in whose block etdev lowers the target's model.

        Only one thread of a process lowers at a time.
        """


@runtime_checkable
class RewritesPrograms(Protocol):
    """Optional protocol of a backend that makes no delegates, and uses operators of its own kernel library instead."""

    @property
    def kernel_library(self) -> str:
        """Name of the backend's kernel library, for the key ``runtime.kernels`` in a config."""

    def compile_config(self) -> Any:
        """Return the ``executorch.exir.EdgeCompileConfig`` for lowering the target's programs."""

    def rewrite(self, program: Any, options: Any) -> Any:
        """Replace ops in a lowered ``ExportedProgram``, and return the result. All partitioners have already run."""


@runtime_checkable
class ForMicrocontrollers(Protocol):
    """Optional protocol of a backend that is for microcontrollers and has no kernel library of its own.

    Programs of this backend do not run on a host.
    """

    @property
    def microcontrollers(self) -> Literal[True]:
        """Always True. Lowering then uses only forms with kernels in the libraries of ``runtime.kernels``.

        If the config lacks this key, lowering uses no forms.
        """


@runtime_checkable
class Backend(Protocol):
    """Interface of an object that lowers parts of a program to delegates.

    Built-in backends are in :mod:`etdev.backends`. Other packages register an object with these members in the
    entry-point group ``etdev.backends``.
    """

    @property
    def name(self) -> str:
        """Name of the backend, for the key ``backend`` in a config."""

    @property
    def summary(self) -> str:
        """One-line description for ``etdev doctor``."""

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types (``cpu``, ``cuda``) on which the backend's delegates can run. The first type is the default."""

    @property
    def delegate_ids(self) -> tuple[str, ...]:
        """Names of the backend's delegates in a ``.pte`` and in a runtime's registry; empty if it has no delegates."""

    @property
    def options(self) -> type[Table]:
        """Pydantic model that validates the table ``options`` of the backend in a config."""

    @property
    def compute_dtype(self) -> str:
        """Least precise dtype in which the delegates compute float32 values, such as ``bfloat16``.

        Verification allows errors that this dtype can cause.
        """

    @property
    def dynamic_shapes(self) -> bool:
        """True if the backend can lower methods with dynamic dimensions."""

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        """Return the problems of the compile specs ``specs``."""

    def availability(self) -> Availability:
        """Return whether :meth:`partitioner` works on this machine, with the reason. Must not import large packages."""

    def partitioner(self, options: Any, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        """Return a partitioner, or None to leave all ops to the runtime's kernels.

        The partitioner is an ``executorch.exir.backend.partitioner.Partitioner``. ``options`` is an instance of
        :attr:`options`. ``specs`` are the config's compile specs. They include ``target_device`` if the chosen device
        is not the host. etdev calls this function once for each method, with the method's name.
        """


def encode_compile_spec(value: CompileSpecValue) -> bytes:
    """Return the bytes of a compile spec: text as UTF-8, and a number as little-endian int32 (int64 if needed).

    Bytes are returned unchanged.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    width = 4 if -(2**31) <= value < 2**31 else 8
    return value.to_bytes(width, "little", signed=True)


def no_compile_specs(name: str, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
    """Yield an issue for every compile spec. Use this for a backend whose compiler reads no compile specs."""
    for key in specs:
        yield SpecIssue(key, f"the backend {name!r} reads no compile specs, so {key!r} would have no effect")


def find_packages(*modules: str, remedy: str) -> Availability:
    """Return the availability of a backend that needs these top-level modules: available if all are installed.

    A version of ExecuTorch that etdev does not support counts as not installed. The reason lists the versions of
    the modules, or states the first module that is missing or not supported.
    """
    found = []
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return Availability(False, f"the package {module!r} is not installed", remedy)
        try:
            version = metadata.version(module)
        except metadata.PackageNotFoundError:
            found.append(module)
            continue
        if module == "executorch" and not compat.is_supported(version):
            return Availability(False, compat.unsupported(version), compat.INSTALL_SUPPORTED)
        found.append(f"{module} {version}")
    return Availability(True, ", ".join(found))
