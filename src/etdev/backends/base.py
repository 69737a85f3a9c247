"""Interface of a backend: name, typed options, compile specs, device types, and the method that makes a partitioner.

Loading a backend's module must import neither torch nor executorch, so that ``validate`` and ``doctor`` work on any
machine. :meth:`Backend.partitioner` imports the packages that it needs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol, runtime_checkable

from etdev import compat
from etdev.config.table import Table
from etdev.errors import LowerError

CompileSpecValue = int | str | bytes
BUILD_EXTRA = 'pip install "etdev[build]"'


class NoOptions(Table):
    """Options of a backend without options."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can lower on this machine."""

    available: bool
    reason: str
    """Packages that were found, such as ``executorch 1.4.1``, or the missing package."""
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
    """Error for an :class:`OptionIssue` that only the lowering of a model can find."""

    def __init__(self, issue: OptionIssue) -> None:
        super().__init__(issue.message, hint=issue.hint)
        self.path = issue.path


@runtime_checkable
class ChecksOptions(Protocol):
    """Backend that checks its options beyond their types."""

    def check_options(self, options: Any) -> Iterable[OptionIssue]:
        """Return the problems of these options, an instance of the backend's ``options``. Import no large packages."""


@runtime_checkable
class CompilesApart(Protocol):
    """Backend that may compile the methods of a program independently of each other.

    If so, ``etdev build -j`` compiles the methods in several processes. Backends that compile all methods together
    (``preprocess_multimethod``) do not have this member.
    """

    @property
    def methods_apart(self) -> bool:
        """True if each method is compiled as if the program had only that method."""


@runtime_checkable
class UsesPackages(Protocol):
    """Backend whose delegates also depend on packages other than torch, executorch and the backend's own package."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of these packages' distributions. The lock and the cache depend on their versions."""


@runtime_checkable
class Backend(Protocol):
    """Way of lowering that a config can name.

    Built-in backends are in :mod:`etdev.backends`. Other packages register an object with these members in the
    entry-point group ``etdev.backends``.
    """

    @property
    def name(self) -> str:
        """Name of the backend, as used in a config's ``backend``."""

    @property
    def summary(self) -> str:
        """One-line description for ``etdev doctor``."""

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types (``cpu``, ``cuda``) on which the backend's delegates can run. The first type is the default."""

    @property
    def delegate_ids(self) -> tuple[str, ...]:
        """Names of the backend's delegates in a ``.pte`` and in a runtime's registry. Empty if there are none."""

    @property
    def options(self) -> type[Table]:
        """Model of the config's ``options``."""

    @property
    def compute_dtype(self) -> str:
        """Least precise dtype in which the delegates compute float32 (``bfloat16``). Verification allows that."""

    @property
    def dynamic_shapes(self) -> bool:
        """True if the backend can lower methods with dynamic dimensions."""

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        """Return the problems of these compile specs."""

    def availability(self) -> Availability:
        """Return whether :meth:`partitioner` would work on this machine. Must not import large packages."""

    def partitioner(self, options: Any, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        """Return a partitioner, or None to leave all ops to the runtime's kernels.

        The partitioner is an ``executorch.exir.backend.partitioner.Partitioner``. ``options`` is an instance of
        :attr:`options`. ``specs`` are the config's compile specs. They include ``target_device`` if the chosen device
        is not the host. etdev calls this once for each ``method``.
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
    """Return whether all these top-level modules are installed.

    A version of ExecuTorch that etdev does not support counts as not installed. The reason in the result states the
    versions of the modules, or the first module that is missing or not supported.
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
