"""Interface of a backend: name, typed options, compile specs, device types, and the method that makes a partitioner.

Modules of backends import neither torch nor executorch when they are loaded, so that ``validate`` and ``doctor`` work
on any machine. :meth:`Backend.partitioner` imports what it needs.
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
    """Options of a backend that has none."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend can lower on this machine."""

    available: bool
    reason: str
    """Packages that were found (``executorch 1.4.1``), or the package that is missing."""
    remedy: str | None = None
    """Command that makes the backend available; None if it is available or no command helps."""


@dataclass(frozen=True, slots=True)
class SpecIssue:
    """Problem with a compile spec, which the backend refuses."""

    key: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class OptionIssue:
    """Problem with an option whose type is right and whose value is not."""

    path: tuple[str | int, ...]
    """Keys from the backend's ``options`` to the value: ``("ops", 0)``."""
    message: str
    hint: str | None = None


class OptionError(LowerError):
    """Error for an :class:`OptionIssue` that cannot be found before a model is lowered."""

    def __init__(self, issue: OptionIssue) -> None:
        super().__init__(issue.message, hint=issue.hint)
        self.path = issue.path


@runtime_checkable
class ChecksOptions(Protocol):
    """A backend that checks more about its options than their types."""

    def check_options(self, options: Any) -> Iterable[OptionIssue]:
        """Return the problems of these options, an instance of the backend's ``options``. Import no large packages."""


@runtime_checkable
class CompilesApart(Protocol):
    """A backend that may compile the methods of a program independently of each other.

    If it does, ``etdev build -j`` compiles them in several processes. Backends that compile all methods at once
    (``preprocess_multimethod``) do not have this member.
    """

    @property
    def methods_apart(self) -> bool:
        """True if each method is compiled as if it were the program's only one."""


@runtime_checkable
class UsesPackages(Protocol):
    """A backend whose delegates also depend on packages other than torch, executorch and the backend's own."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of these packages' distributions. The lock and the cache depend on their versions."""


@runtime_checkable
class Backend(Protocol):
    """A way of lowering that a config can name.

    Built-in backends are in :mod:`etdev.backends`. Other packages register an object with these members in the
    entry-point group ``etdev.backends``.
    """

    @property
    def name(self) -> str:
        """Name of the backend, as used in a config's ``backend``."""

    @property
    def summary(self) -> str:
        """Description for ``etdev doctor``, in one line."""

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types (``cpu``, ``cuda``) that its delegate can run on. The first is the default."""

    @property
    def delegate_ids(self) -> tuple[str, ...]:
        """Names of its delegate in a ``.pte`` and in a runtime's registry; empty if it makes no delegates."""

    @property
    def options(self) -> type[Table]:
        """Model of the config's ``options``."""

    @property
    def compute_dtype(self) -> str:
        """Least precise dtype in which its delegate computes float32 (``bfloat16``). Verification allows for it."""

    @property
    def dynamic_shapes(self) -> bool:
        """True if it can lower methods with dynamic dimensions."""

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        """Return the problems of these compile specs."""

    def availability(self) -> Availability:
        """Return whether :meth:`partitioner` would work on this machine. Import no large packages."""

    def partitioner(self, options: Any, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        """Return a partitioner, or None to leave all ops to the runtime's kernels.

        The partitioner is an ``executorch.exir.backend.partitioner.Partitioner``. ``options`` is an instance of
        :attr:`options`. ``specs`` are the config's compile specs. They have ``target_device`` if the chosen device is
        not the host. This is called once for each ``method``.
        """


def encode_compile_spec(value: CompileSpecValue) -> bytes:
    """Return the bytes of a compile spec: UTF-8 of text, or a little-endian int32 (int64 if needed).

    Bytes are returned unchanged.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    width = 4 if -(2**31) <= value < 2**31 else 8
    return value.to_bytes(width, "little", signed=True)


def no_compile_specs(name: str, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
    """Yield an issue for every compile spec, for a backend whose compiler reads none."""
    for key in specs:
        yield SpecIssue(key, f"the backend {name!r} reads no compile specs, so {key!r} would have no effect")


def find_packages(*modules: str, remedy: str) -> Availability:
    """Return whether all these top-level modules are installed.

    A version of ExecuTorch that etdev does not support counts as not installed. The reason in the result names their
    versions, or the first module that is missing or not supported.
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
