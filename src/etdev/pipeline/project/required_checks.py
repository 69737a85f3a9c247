"""Early detection of required checks that can never run for a target.

A build that requires such a check always ends with exit code 3. This module reads only the config, and does not import
torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from etdev import backends, plugins
from etdev.backends.base import RecordsDelegates
from etdev.backends.devices import placed_specs
from etdev.config.issues import UNRUNNABLE_CHECK
from etdev.config.keys import format_key
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config, Target
from etdev.devices import TARGET_DEVICE
from etdev.errors import Problem
from etdev.pipeline.results.result import NO_LIMIT, NO_METRIC
from etdev.plugins import EXECUTORS, NATIVE_LIBRARIES
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
                    hint=f"{LIBRARY_HINT}; or remove `native` from `require`"
                    if check == "native"
                    else f"remove `{check}` from `require`",
                    rule=UNRUNNABLE_CHECK,
                )


def native_obstacle(config: Config, target: Target) -> str | None:
    """Return the reason why the native runtime can never run a target; None if it may run it.

    If the config names native libraries, return None, because a library may have any backend.
    """
    if config.project.native_libraries:
        return None
    delegates = {name for step in target.partitioners for name in backends.get(step.backend).delegate_ids}
    absent = sorted(delegates - {*plugins.names(NATIVE_LIBRARIES)})
    return f"the native runtime has no backend {', '.join(absent)}" if absent else None


def _obstacle(check: str, target: Target, config: Config) -> str | None:
    """Return the reason why a check can never run for a target; None if it may run."""
    devices, foreign = _devices(target), _not_replayed(target)
    not_replayed = f"etdev cannot run delegates of the backend {foreign[0]!r} yet" if foreign else None
    not_in_stock = f"ExecuTorch's Python runtime has no devices, and the target uses {devices[0]}" if devices else None
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
