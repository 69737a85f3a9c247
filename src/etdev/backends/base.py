"""What a backend is to etdev: a name, typed options, compile specs, device types, and a partitioner made on demand.

Modules here import neither torch nor executorch when they are loaded, so that ``validate`` and ``doctor`` can use them
on any machine; :meth:`Backend.partitioner` imports what it needs.
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
    """Whether a backend can lower a program here."""

    available: bool
    reason: str
    """What was found (``executorch 1.4.1``), or what is missing."""
    remedy: str | None = None
    """The command that mends it."""


@dataclass(frozen=True, slots=True)
class SpecIssue:
    """A compile spec that the backend refuses."""

    key: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class OptionIssue:
    """An option that is of the right type and says what cannot be."""

    path: tuple[str | int, ...]
    """From the backend's ``options`` on: ``("ops", 0)``."""
    message: str
    hint: str | None = None


class OptionError(LowerError):
    """An :class:`OptionIssue` that shows only when a model is lowered."""

    def __init__(self, issue: OptionIssue) -> None:
        super().__init__(issue.message, hint=issue.hint)
        self.path = issue.path


@runtime_checkable
class ChecksOptions(Protocol):
    """A backend that has more to say about its options than their types do."""

    def check_options(self, options: Any) -> Iterable[OptionIssue]:
        """What is wrong with an instance of its ``options``, found out without importing anything heavy."""


@runtime_checkable
class CompilesApart(Protocol):
    """A backend that may say that methods do not hang together: ``etdev build -j`` then compiles them in several
    processes. Those that compile all methods at once (``preprocess_multimethod``) leave it out."""

    @property
    def methods_apart(self) -> bool:
        """Whether each method comes out as if it were the program's only one."""


@runtime_checkable
class UsesPackages(Protocol):
    """A backend whose delegates depend on other packages than torch, executorch and its own."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of their distributions. The lock and the cache go by their versions."""


@runtime_checkable
class Backend(Protocol):
    """One way of lowering. Built in ones stand in :mod:`etdev.backends`; others register an object with these members
    in the entry-point group ``etdev.backends``."""

    @property
    def name(self) -> str:
        """Name in a config's ``backend``."""

    @property
    def summary(self) -> str:
        """One line for ``etdev doctor``."""

    @property
    def device_types(self) -> tuple[str, ...]:
        """Device types (``cpu``, ``cuda``) that its delegate can run on; on the first one, if the config names none."""

    @property
    def delegate_ids(self) -> tuple[str, ...]:
        """Names that its delegate has in a ``.pte`` and in a runtime's registry; empty if it makes none."""

    @property
    def options(self) -> type[Table]:
        """Model of the config's ``options``."""

    @property
    def compute_dtype(self) -> str:
        """Coarsest dtype that its delegate computes float32 in (``bfloat16``, say); verification allows for it."""

    @property
    def dynamic_shapes(self) -> bool:
        """Whether it lowers methods with dynamic dimensions."""

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        """What is wrong with these compile specs."""

    def availability(self) -> Availability:
        """Whether :meth:`partitioner` would work here, found out without importing anything heavy."""

    def partitioner(self, options: Any, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        """An ``executorch.exir.backend.partitioner.Partitioner``, or None for "leave the ops to the kernels".

        ``options`` is an instance of :attr:`options`. ``specs`` are the config's, with ``target_device`` for the device
        that was chosen, if that is not the host. Each ``method`` gets a partitioner of its own.
        """


def encode_compile_spec(value: CompileSpecValue) -> bytes:
    """Bytes of a compile spec: UTF-8 text, a little-endian int32 (int64 if it needs more), or the bytes themselves."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    width = 4 if -(2**31) <= value < 2**31 else 8
    return value.to_bytes(width, "little", signed=True)


def no_compile_specs(name: str, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
    """Issues of a backend whose compiler reads no compile specs at all: any key would be without effect."""
    for key in specs:
        yield SpecIssue(key, f"the backend {name!r} reads no compile specs, so {key!r} would have no effect")


def find_packages(*modules: str, remedy: str) -> Availability:
    """Available if every top-level module can be found; the reason names the versions, or the first that is missing."""
    found = []
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return Availability(False, f"the package {module!r} is not installed", remedy)
        try:
            found.append(f"{module} {metadata.version(module)}")
        except metadata.PackageNotFoundError:
            found.append(module)
    return Availability(True, ", ".join(found))
