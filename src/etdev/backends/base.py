"""Interface of a backend: name, typed options, compile specs, device types, and a partitioner on demand.

Modules here import neither torch nor executorch when they are loaded, so that ``validate`` and ``doctor`` can use them
on any machine. :meth:`Backend.partitioner` imports what it needs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol, runtime_checkable

from etdev.config.table import Table
from etdev.errors import LowerError

CompileSpecValue = int | str | bytes
BUILD_EXTRA = 'pip install "etdev[build]"'


class NoOptions(Table):
    """Options of a backend that has none."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Availability of a backend for lowering on this machine."""

    available: bool
    reason: str
    """Packages that were found (``executorch 1.4.1``), or the one that is missing."""
    remedy: str | None = None
    """Command that fixes it."""


@dataclass(frozen=True, slots=True)
class SpecIssue:
    """Compile spec that the backend refuses."""

    key: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class OptionIssue:
    """Option of the right type with an invalid value."""

    path: tuple[str | int, ...]
    """Path below the backend's ``options``: ``("ops", 0)``."""
    message: str
    hint: str | None = None


class OptionError(LowerError):
    """Error for an :class:`OptionIssue` that is found only when a model is lowered."""

    def __init__(self, issue: OptionIssue) -> None:
        super().__init__(issue.message, hint=issue.hint)
        self.path = issue.path


@runtime_checkable
class ChecksOptions(Protocol):
    """Backend that checks its options beyond their types."""

    def check_options(self, options: Any) -> Iterable[OptionIssue]:
        """Return the problems of an instance of its ``options``, without heavy imports."""


@runtime_checkable
class CompilesApart(Protocol):
    """Backend whose methods may be compiled independently of each other.

    ``etdev build -j`` then compiles them in several processes. Backends that compile all methods at once
    (``preprocess_multimethod``) leave it out.
    """

    @property
    def methods_apart(self) -> bool:
        """True if each method comes out as if it were the program's only one."""


@runtime_checkable
class UsesPackages(Protocol):
    """Backend whose delegates depend on packages other than torch, executorch and its own."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of their distributions. The lock and the cache depend on their versions."""


@runtime_checkable
class Backend(Protocol):
    """One way of lowering.

    Built-in backends are in :mod:`etdev.backends`. Others register an object with these members in the entry-point
    group ``etdev.backends``.
    """

    @property
    def name(self) -> str:
        """Name in a config's ``backend``."""

    @property
    def summary(self) -> str:
        """One line for ``etdev doctor``."""

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types (``cpu``, ``cuda``) that its delegate can run on. The first is the default."""

    @property
    def delegate_ids(self) -> tuple[str, ...]:
        """Names of its delegate in a ``.pte`` and in a runtime's registry; empty if it creates none."""

    @property
    def options(self) -> type[Table]:
        """Model of the config's ``options``."""

    @property
    def compute_dtype(self) -> str:
        """Coarsest dtype in which its delegate computes float32, such as ``bfloat16``; verification allows for it."""

    @property
    def dynamic_shapes(self) -> bool:
        """True if it lowers methods with dynamic dimensions."""

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        """Return the problems of these compile specs."""

    def availability(self) -> Availability:
        """Return whether :meth:`partitioner` would work here, without heavy imports."""

    def partitioner(self, options: Any, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        """Return a partitioner, or None to leave the ops to the kernels.

        It is an ``executorch.exir.backend.partitioner.Partitioner``. ``options`` is an instance of :attr:`options`.
        ``specs`` are the config's, with ``target_device`` for the chosen device, unless that is the host. Each
        ``method`` gets its own partitioner.
        """


def encode_compile_spec(value: CompileSpecValue) -> bytes:
    """Encode a compile spec: UTF-8 text, a little-endian int32 (int64 if needed), or the bytes themselves."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    width = 4 if -(2**31) <= value < 2**31 else 8
    return value.to_bytes(width, "little", signed=True)


def no_compile_specs(name: str, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
    """Yield an issue for every compile spec of a backend whose compiler reads none."""
    for key in specs:
        yield SpecIssue(key, f"the backend {name!r} reads no compile specs, so {key!r} would have no effect")


def find_packages(*modules: str, remedy: str) -> Availability:
    """Return whether all top-level modules are installed.

    The reason names the versions, or the first missing module.
    """
    found = []
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return Availability(False, f"the package {module!r} is not installed", remedy)
        try:
            found.append(f"{module} {metadata.version(module)}")
        except metadata.PackageNotFoundError:
            found.append(module)
    return Availability(True, ", ".join(found))
