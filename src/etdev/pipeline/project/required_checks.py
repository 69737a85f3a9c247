"""Early detection of required checks that can never run for a target, and of limits that cannot be measured here.

A build that requires such a check always ends with exit code 3. This module reads only the config, and does not import
torch.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from etdev import backends, plugins
from etdev.backends.base import RecordsDelegates, RewritesPrograms, RunsElsewhere
from etdev.backends.devices import placed_specs
from etdev.config.issues import UNMEASURED_LIMIT, UNRUNNABLE_CHECK
from etdev.config.keys import format_key
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config, Target
from etdev.config.tables.schemes import Pt2e
from etdev.devices import TARGET_DEVICE
from etdev.errors import Problem
from etdev.pipeline.results.reasons import NO_LIMIT, NO_METRIC
from etdev.plugins import EXECUTORS, NATIVE_LIBRARIES
from etdev.runtime.native.executable import HOST_VARIABLE
from etdev.runtime.native.toolchain import Missing, find_toolchain
from etdev.runtime.native_libraries import LIBRARY_HINT


def unrunnable_checks(loaded: LoadedConfig) -> Iterator[Problem]:
    """Yield a problem for each required check that can never run, at the check's location in the config."""
    for name, target in loaded.config.targets.items():
        for index, check in enumerate(target.verify.require):
            reason = _obstacle(check, target, loaded.config)
            if reason is not None:
                key = ("targets", name, "verify", "require", index)
                yield loaded.problem(
                    f"`{format_key(key)}`: the check `{check}` cannot run, so every build ends with exit code 3: "
                    f"{reason}",
                    *key,
                    hint=_remedy(check, target),
                    rule=UNRUNNABLE_CHECK,
                )


def unmeasured_limits(loaded: LoadedConfig) -> Iterator[Problem]:
    """Yield a problem for each limit ``budget.ram`` that a build on this machine does not compare.

    The memory is measured in the native runtime, which etdev compiles. There is no problem if executorch is missing,
    because then nothing can be built here.
    """
    limited = [name for name, target in loaded.config.targets.items() if target.budget.ram is not None]
    if not limited or importlib.util.find_spec("executorch") is None:
        return
    tools = None if os.environ.get(HOST_VARIABLE) else find_toolchain()
    for name in limited:
        target, key = loaded.config.targets[name], ("targets", name, "budget", "ram")
        if isinstance(tools, Missing):
            reason, hint = tools.reason, tools.remedy
        else:
            reason, hint = native_obstacle(loaded.config, target) or "", LIBRARY_HINT
        if not reason:
            continue
        end, advice = "succeeds", "; or require the check `budget`, which then fails the build"
        if "budget" in target.verify.require:
            end, advice = "ends with exit code 3", "; or remove the limit"
        yield loaded.problem(
            f"`{format_key(key)}`: this limit cannot be measured here, and a build {end} unless the known parts exceed "
            f"it: {reason}",
            *key,
            hint=hint + advice,
            rule=UNMEASURED_LIMIT,
        )


def _remedy(check: str, target: Target) -> str:
    if check == "native":
        return f"{LIBRARY_HINT}; or remove `native` from `require`"
    if check == "runtime" and not _devices(target) and not _not_replayed(target):
        return "require `replay` instead, which runs this program; or remove `runtime` from `require`"
    return f"remove `{check}` from `require`"


def native_obstacle(config: Config, target: Target) -> str | None:
    """Return the reason why the native runtime can never run a target; None if it may run it.

    If the config names native libraries, return None, because a library may have any backend.
    """
    if config.project.native_libraries:
        return None
    delegates = {name for step in target.partitioners for name in backends.get(step.backend).delegate_ids}
    absent = sorted(delegates - {*plugins.names(NATIVE_LIBRARIES)})
    if absent:
        return f"the native runtime has no backend {', '.join(absent)}"
    library = _kernel_library(target, config)
    return f"the native runtime has no kernels of the library {library!r}" if library else None


def _obstacle(check: str, target: Target, config: Config) -> str | None:
    """Return the reason why a check can never run for a target; None if it may run."""
    devices, foreign = _devices(target), _not_replayed(target)
    not_replayed = f"etdev cannot run delegates of the backend {foreign[0]!r} yet" if foreign else None
    not_in_stock = _stock_obstacle(target, config)
    match check:
        case "device":
            return not_replayed if devices else "the target uses no device"
        case "replay":
            return not_replayed
        case "tosa":
            used = any(step.backend == "ethos-u" for step in target.partitioners)
            return None if used else "the target does not use the backend 'ethos-u'"
        case "native":
            return native_obstacle(config, target)
        case "runtime":
            return not_in_stock
        case "latency":
            return NO_LIMIT if target.budget.latency is None else not_in_stock
        case "accuracy":
            return NO_METRIC if target.verify.accuracy is None else not_in_stock and not_replayed
        case _:
            return None


def _stock_obstacle(target: Target, config: Config) -> str | None:
    """Return the reason why ExecuTorch's Python runtime can never run a target; None if it may run it.

    If the config names modules to import, they may register kernels in that runtime.
    """
    devices = _devices(target)
    if devices:
        return f"ExecuTorch's Python runtime has no devices, and the target uses {devices[0]}"
    used = (backends.get(step.backend) for step in target.partitioners)
    absent = next((backend for backend in used if isinstance(backend, RunsElsewhere)), None)
    if absent is not None:
        return f"ExecuTorch's Python runtime has no backend {', '.join(absent.delegate_ids)}"
    library = None if config.project.imports else _kernel_library(target, config)
    return f"ExecuTorch's Python runtime has no kernels of the library {library!r}" if library else None


def _kernel_library(target: Target, config: Config) -> str | None:
    """Return the kernel library that a target quantized by PT2E needs in addition to those of ExecuTorch's package.

    Return None if there is no such library. A backend that rewrites programs replaces only ops of such a target, and
    leaves all other ops to the kernels of the package.
    """
    if target.quantize is None or not isinstance(config.quantize[target.quantize], Pt2e):
        return None
    used = (backends.get(step.backend) for step in target.partitioners)
    return next((backend.kernel_library for backend in used if isinstance(backend, RewritesPrograms)), None)


def _devices(target: Target) -> list[str]:
    """Return the devices that the target's partitioners use."""
    specs = (placed_specs(backends.get(step.backend), step.device, step.compile_specs) for step in target.partitioners)
    return [str(found[TARGET_DEVICE]) for found in specs if TARGET_DEVICE in found]


def _records(name: str) -> bool:
    """Return True if a backend records programs that the check ``replay`` runs in place of the backend's delegates."""
    return isinstance(backends.get(name), RecordsDelegates)


def _not_replayed(target: Target) -> list[str]:
    """Return the target's backends whose delegates the check ``replay`` cannot run."""
    names = [step.backend for step in target.partitioners if not _records(step.backend)]
    replayed = {*plugins.names(EXECUTORS)}
    return [name for name in names if not replayed.issuperset(backends.get(name).delegate_ids)]
