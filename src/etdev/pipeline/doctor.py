"""Diagnosis of this machine: versions, backends, the installed runtime, and what a config needs.

This module imports nothing that is slow. It reads versions from the packages' metadata, and asks the runtime in a
process of its own.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from etdev import backends, compat
from etdev._version import __version__
from etdev.backends.base import BUILD_EXTRA, Backend
from etdev.backends.openvino import EXTRA as OPENVINO_EXTRA
from etdev.backends.reference import Reference
from etdev.config.loader import LoadedConfig
from etdev.errors import MissingRequirementError
from etdev.pipeline.project.requirements import HF_EXTRA, required_packages
from etdev.pipeline.project.versions import package_version
from etdev.runtime.native import Missing, find_toolchain
from etdev.runtime.native.executable import HOST_VARIABLE
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RUNTIME_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Package:
    """A package that etdev uses, installed or not."""

    name: str
    version: str | None
    """Installed version; None if the package is not installed."""
    tested: tuple[str, ...]
    """Versions that this etdev was tested with, newest first, if other versions may not work; empty otherwise."""
    purpose: str
    remedy: str
    refusal: str | None = None
    """Reason why etdev does not work with the installed version; None if it does, or if there is no version."""

    @property
    def untested(self) -> bool:
        """True if the installed version is not a tested one; a suffix such as ``+cpu`` does not count."""
        return self.version is not None and bool(self.tested) and self.version.partition("+")[0] not in self.tested


@dataclass(frozen=True, slots=True)
class RuntimeState:
    """ExecuTorch's Python runtime, in which verification runs programs."""

    available: bool
    reason: str
    backends: tuple[str, ...] = ()
    """Names of the delegates that are registered in the runtime."""


@dataclass(frozen=True, slots=True)
class NativeState:
    """The native runtime: ExecuTorch's C++ runtime, which etdev compiles on first use."""

    available: bool
    reason: str
    """Tools that compile it, or the tool that is missing."""
    remedy: str | None


@dataclass(frozen=True, slots=True)
class BackendState:
    """What a backend can do on this machine: lower programs, and run them in the installed runtime."""

    name: str
    summary: str
    available: bool
    reason: str
    remedy: str | None
    device_types: tuple[str, ...]
    registered: bool | None
    """True if the runtime has the backend's delegate; None if the backend has no delegate or there is no runtime."""


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement of a config that this machine lacks."""

    key: str
    """Key of the config that has the requirement."""
    message: str
    remedy: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The content of ``etdev doctor``'s output."""

    etdev: str
    python: str
    platform: str
    packages: tuple[Package, ...]
    runtime: RuntimeState
    native: NativeState
    backends: tuple[BackendState, ...]


PACKAGES: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("torch", ("2.13.0",), "models, export", BUILD_EXTRA),
    ("executorch", compat.TESTED, "lowering, emission, the runtime", BUILD_EXTRA),
    ("torchao", ("0.18.0",), "quantization", BUILD_EXTRA),
    ("safetensors", (), "`model.weights`", BUILD_EXTRA),
    ("openvino", (), "the backend `openvino`", OPENVINO_EXTRA),
    ("nncf", (), "the backend `openvino`", OPENVINO_EXTRA),
    ("transformers", (), "`model.hf`", HF_EXTRA),
)
"""Name, tested versions, purpose and remedy of each listed package."""


def diagnose() -> Diagnosis:
    """Examine this machine; takes seconds if ExecuTorch is installed, since its runtime starts once."""
    runtime = _runtime()
    return Diagnosis(
        etdev=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=tuple(_package(*row) for row in PACKAGES),
        runtime=runtime,
        native=_native(),
        backends=tuple(_backend(name, runtime) for name in backends.names()),
    )


def _package(name: str, tested: tuple[str, ...], purpose: str, remedy: str) -> Package:
    version = package_version(name)
    if name == "executorch" and version is not None and not compat.is_supported(version):
        return Package(name, version, tested, purpose, compat.INSTALL_SUPPORTED, compat.unsupported(version))
    return Package(name, version, tested, purpose, remedy)


def unmet_needs(loaded: LoadedConfig, found: Diagnosis) -> tuple[Need, ...]:
    """Return the needs of this config, for building and verifying, that this machine does not meet."""
    return tuple(dict.fromkeys([*_model_needs(loaded, found), *_target_needs(loaded, found)]))


def _runtime() -> RuntimeState:
    if package_version("executorch") is None:
        return RuntimeState(False, "executorch is not installed")
    # The runtime's block ends before the thread's. Its end stops the runtime's process, and with it a call that hangs.
    with ThreadPoolExecutor(1) as waiting, StockRuntime() as runtime:
        try:
            names = waiting.submit(lambda: runtime.backends).result(timeout=_RUNTIME_SECONDS)
        except TimeoutError:
            return RuntimeState(False, f"executorch's runtime did not start within {_RUNTIME_SECONDS} s")
        except (MissingRequirementError, ProgramFailureError) as error:
            return RuntimeState(False, error.message if isinstance(error, MissingRequirementError) else str(error))
    return RuntimeState(True, f"executorch {package_version('executorch')}", tuple(sorted(names)))


def _native() -> NativeState:
    if os.environ.get(HOST_VARIABLE):
        return NativeState(True, f"compiled before, at {os.environ[HOST_VARIABLE]}", None)
    found = find_toolchain()
    if isinstance(found, Missing):
        return NativeState(False, found.reason, found.remedy)
    tools = [found.compiler, found.cmake, *([found.ninja] if found.ninja else [])]
    return NativeState(True, f"compiled on first use with {', '.join(map(str, tools))}", None)


def _backend(name: str, runtime: RuntimeState) -> BackendState:
    try:
        backend = backends.get(name)
    except MissingRequirementError as error:
        return BackendState(name, "", False, error.message, error.hint, (), None)
    state = backend.availability()
    return BackendState(
        name=name,
        summary=backend.summary,
        available=state.available,
        reason=state.reason,
        remedy=state.remedy,
        device_types=tuple(backend.device_types),
        registered=_registered(backend, runtime),
    )


def _registered(backend: Backend, runtime: RuntimeState) -> bool | None:
    if not backend.delegate_ids or not runtime.available:
        return None
    return set(backend.delegate_ids) <= set(runtime.backends)


def _model_needs(loaded: LoadedConfig, found: Diagnosis) -> Iterator[Need]:
    installed = {package.name: package for package in found.packages if package.version is not None}
    for need in required_packages(loaded.config, loaded.config.targets):
        key = ".".join(need.key or ("model",))
        package = installed.get(need.package)
        if package is None:
            yield Need(key, f"the package {need.package!r} is not installed", need.remedy)
        elif package.refusal is not None:
            yield Need(key, package.refusal, package.remedy)


def _target_needs(loaded: LoadedConfig, found: Diagnosis) -> Iterator[Need]:
    states = {state.name: state for state in found.backends}
    for name, target in loaded.config.targets.items():
        for index, step in enumerate(target.partitioners):
            yield from _backend_needs(f"targets.{name}.partitioners[{index}].backend", states[step.backend])
        if not found.native.available:
            message = f"the native runtime is not available: {found.native.reason}"
            if target.budget.ram is not None:
                yield Need(f"targets.{name}.budget.ram", message, found.native.remedy)
            if "native" in target.verify.require:
                yield Need(f"targets.{name}.verify.require", message, found.native.remedy)


def _backend_needs(key: str, state: BackendState) -> Sequence[Need]:
    if not state.available:
        return [Need(key, f"the backend {state.name!r} is not available: {state.reason}", state.remedy)]
    # etdev's own delegate is in no runtime on any machine.
    if state.registered is False and state.name != Reference.name:
        return [
            Need(
                key,
                f"the installed runtime lacks the delegate of the backend {state.name!r}: programs cannot run here",
                state.remedy,
            )
        ]
    return []
