"""Diagnosis of this machine: versions, backends, the installed runtime, and unmet needs of a config.

This module imports nothing that is slow. It reads versions from the packages' metadata. It starts the runtime in a
separate process to list the runtime's backends.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from etdev import backends, compat, plugins, tosa_tools
from etdev._version import __version__
from etdev.backends.base import BUILD_EXTRA, Backend, RunsElsewhere
from etdev.backends.ethos_u import EXTRA as ETHOS_U_EXTRA
from etdev.backends.ethos_u import vela
from etdev.backends.openvino import EXTRA as OPENVINO_EXTRA
from etdev.config.loader import LoadedConfig
from etdev.config.models import Target
from etdev.errors import MissingRequirementError
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import native_library_places
from etdev.pipeline.project.required_checks import native_obstacle
from etdev.pipeline.project.requirements import HF_EXTRA, imported_requirements, required_packages
from etdev.pipeline.project.versions import package_version
from etdev.plugins import NATIVE_LIBRARIES
from etdev.runtime.native import Missing, find_toolchain
from etdev.runtime.native.executable import HOST_VARIABLE
from etdev.runtime.native_libraries import LIBRARY_HINT, needed_libraries
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RUNTIME_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Package:
    """A package that etdev uses, installed or not."""

    name: str
    version: str | None
    """Installed version; None if the package is not installed."""
    tested: tuple[str, ...]
    """Versions that this version of etdev was tested with, newest first; empty if any version is expected to work."""
    purpose: str
    remedy: str
    refusal: str | None = None
    """Reason why the installed version does not work with etdev; None if it works or no version is installed."""

    @property
    def untested(self) -> bool:
        """True if the installed version is not in ``tested``; a suffix such as ``+cpu`` does not count."""
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
    """State of the native runtime on this machine: ExecuTorch's C++ runtime, which etdev compiles on first use."""

    available: bool
    reason: str
    """Text on how etdev compiles the native runtime. If ``available`` is False, text on the missing tool."""
    remedy: str | None


@dataclass(frozen=True, slots=True)
class BackendState:
    """Abilities of a backend on this machine: lowering, and execution in the installed runtime."""

    name: str
    summary: str
    available: bool
    reason: str
    remedy: str | None
    device_types: tuple[str, ...]
    registered: bool | None
    """True if the runtime has the backend's delegate; None if the backend has no delegate or there is no runtime."""
    native: bool | None = None
    """True if the native runtime, or a library in an installed package, has the backend's delegate.

    None if the backend has no delegate or the native runtime is not available.
    """


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement of a config that this machine lacks."""

    key: str
    """Config key that has the requirement."""
    message: str
    remedy: str | None


@dataclass(frozen=True, slots=True)
class Fact:
    """A limitation of a target. The limitation is the same on every machine."""

    key: str
    """Config key that has the limitation."""
    message: str


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
    (vela.DISTRIBUTION, ("5.2.0",), "the backend `ethos-u`", ETHOS_U_EXTRA),
    (tosa_tools.DISTRIBUTION, tosa_tools.TESTED, "the backend `ethos-u`, the check `tosa`", tosa_tools.remedy()),
    ("transformers", (), "`model.hf`", HF_EXTRA),
)
"""Name, tested versions, purpose and remedy of each listed package."""


def diagnose() -> Diagnosis:
    """Examine this machine. This takes seconds if ExecuTorch is installed, because the runtime starts once."""
    runtime, native = _runtime(), _native()
    return Diagnosis(
        etdev=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=tuple(_package(*row) for row in PACKAGES),
        runtime=runtime,
        native=native,
        backends=tuple(_backend(name, runtime, native) for name in backends.names()),
    )


def _package(name: str, tested: tuple[str, ...], purpose: str, remedy: str) -> Package:
    version = package_version(name)
    if name == "executorch" and version is not None and not compat.is_supported(version):
        return Package(name, version, tested, purpose, compat.INSTALL_SUPPORTED, compat.unsupported(version))
    return Package(name, version, tested, purpose, remedy)


def unmet_needs(loaded: LoadedConfig, found: Diagnosis) -> tuple[Need, ...]:
    """Return the requirements that this machine lacks, for building and for verifying this config."""
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


def _backend(name: str, runtime: RuntimeState, native: NativeState) -> BackendState:
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
        native=_in_native(backend, native),
    )


def _registered(backend: Backend, runtime: RuntimeState) -> bool | None:
    if not backend.delegate_ids or not runtime.available:
        return None
    return set(backend.delegate_ids) <= set(runtime.backends)


def _in_native(backend: Backend, native: NativeState) -> bool | None:
    if not backend.delegate_ids or not native.available:
        return None
    try:
        needed_libraries(backend.delegate_ids)
    except MissingRequirementError:
        return False
    return {*backend.delegate_ids} <= {*plugins.names(NATIVE_LIBRARIES)}


def _model_needs(loaded: LoadedConfig, found: Diagnosis) -> Iterator[Need]:
    installed = {package.name: package for package in found.packages if package.version is not None}
    for need in required_packages(loaded.config, loaded.config.targets):
        key = ".".join(need.key or ("model",))
        package = installed.get(need.package)
        if package is None:
            yield Need(key, f"the package {need.package!r} is not installed", need.remedy)
        elif package.refusal is not None:
            yield Need(key, package.refusal, package.remedy)
    for need in imported_requirements(loaded):
        message = f"the model imports the package {need.package!r}, which is not installed"
        yield Need("model.entry", message, need.remedy)


def _target_needs(loaded: LoadedConfig, found: Diagnosis) -> Iterator[Need]:
    states = {state.name: state for state in found.backends}
    for name, target in loaded.config.targets.items():
        for index, step in enumerate(target.partitioners):
            state = states[step.backend]
            runs = found.native.available and _has_library(loaded, state)
            yield from _backend_needs(f"targets.{name}.partitioners[{index}].backend", state, runs_natively=runs)
        keys = [
            key
            for key, wanted in (
                ("budget.ram", target.budget.ram is not None),
                ("verify.require", "native" in target.verify.require),
            )
            if wanted
        ]
        for key in keys:
            yield from _native_needs(f"targets.{name}.{key}", loaded, target, found.native)


def facts_of_targets(loaded: LoadedConfig, found: Diagnosis) -> tuple[Fact, ...]:
    """Return a fact for each partitioner of this config whose delegates do not run in ExecuTorch on a host.

    These facts are not needs, because the user cannot install anything that changes them.
    """
    usable = {state.name for state in found.backends if state.available}
    return tuple(
        Fact(f"targets.{name}.partitioners[{index}].backend", backend.runs_elsewhere)
        for name, target in loaded.config.targets.items()
        for index, step in enumerate(target.partitioners)
        if step.backend in usable and isinstance(backend := backends.get(step.backend), RunsElsewhere)
    )


def _native_needs(key: str, loaded: LoadedConfig, target: Target, state: NativeState) -> Iterator[Need]:
    if not state.available:
        yield Need(key, f"the native runtime is not available: {state.reason}", state.remedy)
    lacking = native_obstacle(loaded.config, target)
    if lacking is not None:
        yield Need(key, lacking, LIBRARY_HINT)
    delegates = [name for step in target.partitioners for name in backends.get(step.backend).delegate_ids]
    try:
        needed_libraries(delegates, native_library_places(Project(loaded)))
    except MissingRequirementError as error:
        yield Need(key, f"{error.where}: {error.message}" if error.where else error.message, error.hint)


def _has_library(loaded: LoadedConfig, state: BackendState) -> bool:
    """Return True if a native library from outside ExecuTorch may have the backend's delegates."""
    if not state.available or {*backends.get(state.name).delegate_ids} <= {*NATIVE_LIBRARIES.built_in}:
        return False
    return bool(loaded.config.project.native_libraries or state.native)


def _backend_needs(key: str, state: BackendState, *, runs_natively: bool) -> Sequence[Need]:
    if not state.available:
        return [Need(key, f"the backend {state.name!r} is not available: {state.reason}", state.remedy)]
    runs_elsewhere = isinstance(backends.get(state.name), RunsElsewhere)
    if state.registered is False and not runs_natively and not runs_elsewhere:
        return [
            Need(
                key,
                f"the installed runtime lacks the delegate of the backend {state.name!r}: programs cannot run here",
                state.remedy,
            )
        ]
    return []
