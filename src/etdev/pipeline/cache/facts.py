"""Facts of a build: settings, versions and the machine, all known before the project's code is imported."""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from etdev import backends, plugins
from etdev.config.models import LINK_KEYS
from etdev.errors import MissingRequirementError
from etdev.pipeline.cache.digests import Digests, digest_of_text
from etdev.pipeline.cache.entries import ABSENT, Facts, Plain, flattened
from etdev.pipeline.project import Project, says_share_state
from etdev.pipeline.project.baseline_source import baseline_path, committed_lock, judges_growth, report_of
from etdev.pipeline.project.machine import describe_machine
from etdev.pipeline.project.options import BuildOptions, required_checks
from etdev.pipeline.project.places import native_library_places
from etdev.pipeline.project.requirements import build_packages
from etdev.pipeline.project.usable_forms import limits_ram, usable_forms
from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.report import report_beside
from etdev.plugins import BACKENDS, CHECKS, EXECUTORS, PLANNERS
from etdev.runtime.native_libraries import registered_delegates, registered_library

_NOT_SETTINGS = (("extends",), ("profiles",), ("deploy",), ("run",))
"""Tables of the config that are not among the facts.

``extends`` and ``profiles`` are already applied to the other settings. ``deploy`` and ``run`` do not affect a build.
"""
_MODULE_KEYS = (("model", "entry"), ("constants",), ("project", "imports"))
"""Config keys whose values are names of modules that contribute to a model."""
_AFTER_EMISSION = (
    ("project", "name"),
    ("project", "out"),
    ("project", "native_libraries"),
    ("baseline",),
    ("methods", "*", "samples"),
    ("targets", "*", "verify"),
    ("targets", "*", "budget"),
    ("targets", "*", "runtime"),
    ("targets", "*", "selected_operators"),
    ("targets", "*", "runner"),
)
"""Keys that no stage up to emission reads.

The list includes the target's ``runtime``, although the runtime's kernels decide which forms lowering may use. The
names of these forms are a separate fact.
"""


def object_facts(project: Project, target: str) -> Facts:
    """Return the facts that a target's object program depends on."""
    settings = _settings(project, target)
    memory, this = project.config.targets[target].memory, settings["targets"]["this"]
    # Methods that exceed the banks are tiled, unless the target's kernels allow no forms.
    if memory.tiling == "auto" and memory.room is not None and settings["forms"]:
        linked = {key: copy.deepcopy(this[key]) for key in ("io", "elide")}
        settings["banks"] = {"room": memory.room, "alignment": memory.alignment, "order": memory.order, **linked}
    for key in (*LINK_KEYS, *_AFTER_EMISSION):
        _drop(settings, key)
    io = this["io"]
    this["io"] = {name: item for name, item in io.items() if item["quantized"]}
    settings |= _circumstances(project)
    return Facts(settings=flattened(settings), versions=_versions(project, target, linked=False))


def linked_facts(project: Project, target: str, options: BuildOptions, digests: Digests) -> Facts:
    """Return the facts that a target's final files and their verification depend on."""
    settings = _settings(project, target) | _circumstances(project)
    settings["project"]["name"] = project.name
    settings["run"] = {
        "verify": options.verify,
        "require": list(required_checks(project, target, options)),
        "device map": {str(device): str(place) for device, place in options.device_map.items()},
        "devices": _visible_devices(),
        "baseline": _baseline(project, target, digests) if options.verify else None,
        "native libraries": _native_libraries(project, target, digests) if options.verify else {},
        "machine": _machine() if project.config.targets[target].budget.latency is not None else None,
    }
    return Facts(settings=flattened(settings), versions=_versions(project, target, linked=True) | _checks(digests))


def locked_facts(project: Project, target: str) -> Facts:
    """Return the facts that determine the bytes of a target's file on any machine.

    Only settings that differ from their defaults are included.
    """
    settings = _settings(project, target, exclude_defaults=True)
    for key in _AFTER_EMISSION:
        _drop(settings, key)
    stated = {key: value for key, value in flattened(settings).items() if value is not None}
    return Facts(settings=stated, versions=_package_versions(project, target, linked=True))


def _circumstances(project: Project) -> dict[str, Any]:
    """Return facts on explicitly set keys and on module folders.

    The fact ``stated`` lists keys that the config sets explicitly, even to their default. It covers only keys for
    which setting the default has another effect than omitting the key. The fact ``bases`` maps each key in
    ``_MODULE_KEYS`` to the folder in which the key's modules are searched.
    """
    root = project.loaded.root
    return {
        "stated": ["model.share_state"] if says_share_state(project) else [],
        "bases": {".".join(key): os.path.relpath(project.base(*key), root) for key in _MODULE_KEYS},
    }


def _settings(project: Project, target: str, *, exclude_defaults: bool = False) -> dict[str, Any]:
    settings: dict[str, Any] = project.config.model_dump(mode="json", exclude_defaults=exclude_defaults)
    settings["targets"] = {"this": settings["targets"][target]}
    for key in _NOT_SETTINGS:
        _drop(settings, key)
    wanted = project.config.targets[target].quantize
    settings["quantize"] = {name: scheme for name, scheme in settings.get("quantize", {}).items() if name == wanted}
    settings["forms"] = list(usable_forms(project, target))
    if settings["forms"] and limits_ram(project.config.targets[target]):
        settings["ram"] = {"counted": True}
    return settings


def _drop(settings: Any, key: tuple[str | int, ...]) -> None:
    """Remove a key from nested tables; ``*`` in the key matches every name."""
    first, *rest = key
    for name in list(settings) if first == "*" else [first]:
        if not rest:
            settings.pop(name, None)
        elif isinstance(settings.get(name), dict):
            _drop(settings[name], tuple(rest))


def _versions(project: Project, target: str, *, linked: bool) -> dict[str, str]:
    found = {
        **_package_versions(project, target, linked=linked),
        "machine": platform.machine(),
        "system": platform.system(),
    }
    source = _source_digest()
    if source is not None:
        found["etdev"] += f" ({source})"
    return found


def _package_versions(project: Project, target: str, *, linked: bool) -> dict[str, str]:
    """Return the versions of the packages on which a build of the target can depend."""
    found = dict(versions(build_packages(project.config, target)))
    for package in _plugins(project, target, linked=linked):
        found[package.name] = package.version
    return found


def _plugins(project: Project, target: str, *, linked: bool) -> Iterator[metadata.Distribution]:
    """Yield the packages that provide the target's backends or the executors for their delegates.

    If ``linked``, also yield the package of the target's planner.
    """
    settings = project.config.targets[target]
    used = []
    for step in settings.partitioners:
        used.append((BACKENDS, step.backend))
        used += [(EXECUTORS, delegate) for delegate in backends.get(step.backend).delegate_ids]
    if linked:
        used.append((PLANNERS, settings.memory.planner))
    for group, name in used:
        package = plugins.distribution(group, name) if name in plugins.names(group) else None
        if package is not None:
            yield package


def _checks(digests: Digests) -> dict[str, str]:
    """Return the version of each check that another package provides, by the check's name.

    If the check's module is a single file, the version includes the file's digest.
    """
    found = {}
    for name in plugins.registered(CHECKS):
        package = plugins.distribution(CHECKS, name)
        spec = find_spec(plugins.module_of(CHECKS, name).partition(".")[0])
        source = digests.of(Path(spec.origin))[:12] if spec is not None and spec.origin is not None else "missing"
        found[f"check {name}"] = f"{package.version if package else ''} ({source})"
    return found


@functools.cache
def _source_digest() -> str | None:
    """Return the digest of etdev's code; None if etdev was installed from a wheel.

    Code that is not from a wheel may change while its version stays the same. Each process computes the digest only
    once.
    """
    root = Path(__file__).parents[2]
    try:
        if metadata.distribution("etdev").read_text("direct_url.json") is None and "site-packages" in root.parts:
            return None
    except metadata.PackageNotFoundError:
        pass
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\n{len(text := path.read_bytes())}\n".encode() + text)
    return found.hexdigest()[:12]


def _baseline(project: Project, target: str, digests: Digests) -> str | None:
    """Return a text that identifies a target's baseline; None if nothing is compared with a baseline."""
    if not judges_growth(project, target) or project.config.baseline is None:
        return None
    path = baseline_path(project)
    if path is None:
        lock = committed_lock(project)
        return None if lock is None else digest_of_text(lock)
    try:
        if path.is_dir():
            return digests.of(report_of(path, target))
        report = report_beside(path)
        return digests.of(path) + (digests.of(report) if report.is_file() else "")
    except OSError:
        return None


def _native_libraries(project: Project, target: str, digests: Digests) -> dict[str, str]:
    """Return the digest of each native library that verification runs.

    The key of a library is its path in the config, or the delegate for which a package registers the library.
    """
    found = dict(zip(project.config.project.native_libraries, native_library_places(project), strict=True))
    delegates = {
        delegate
        for step in project.config.targets[target].partitioners
        for delegate in backends.get(step.backend).delegate_ids
    }
    with suppress(MissingRequirementError):  # Verification reports it.
        for delegate in registered_delegates(delegates):
            found[delegate] = registered_library(delegate)
    return {name: _digest_or_absent(path, digests) for name, path in sorted(found.items())}


def _digest_or_absent(path: Path, digests: Digests) -> str:
    try:
        return digests.of(path)
    except OSError:
        return ABSENT


def _machine() -> str:
    """Return a description of this machine; measured times depend on it."""
    machine = describe_machine()
    return f"{machine.cpu}, {machine.cores} cores, {machine.system}"


def _visible_devices() -> Mapping[str, Plain]:
    """Return facts that determine which CUDA devices are available, by name. Import no slow library."""
    try:
        cards = sorted(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        cards = []
    return {"cuda": ",".join(cards), "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
