"""The command ``etdev doctor``, which shows the versions and backends that work here, and what to install."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, SetOption, VerboseOption
from etdev.cli.rendering.output import TEXT, parse_outputs
from etdev.cli.rendering.text import columns
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from etdev.config.loader import LoadedConfig
    from etdev.pipeline.doctor import BackendState, Diagnosis, Fact, Need, Package


def doctor(
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Show the versions and backends that work on this machine, and what to install.

    If there is a config, also list requirements of the config that this machine does not meet, and packages that the
    model's module imports and that are not installed. The exit code is then 3. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    from etdev.backends.opening import open_config
    from etdev.cli.reports import refuse_config
    from etdev.config.parsing.config_files import has_config
    from etdev.pipeline.doctor import diagnose, facts_of_targets, unmet_needs

    refuse_config(outputs, config)
    loaded = None
    if config is not None or has_config(Path.cwd()):
        loaded = open_config(config, profile=profile, overrides=overrides)
    found = diagnose()
    needs = unmet_needs(loaded, found) if loaded is not None else None
    facts = facts_of_targets(loaded, found) if loaded is not None else ()
    outputs.write(
        {TEXT: lambda: _text(found, loaded, needs, facts), "json": lambda: _json(found, loaded, needs, facts)}
    )
    return ExitCode.ENVIRONMENT if needs else ExitCode.DONE


def _json(found: Diagnosis, loaded: LoadedConfig | None, needs: Sequence[Need] | None, facts: Sequence[Fact]) -> str:
    document = {
        "format": 1,
        **asdict(found),
        "config": None if loaded is None else str(loaded.path),
        "needs": None if needs is None else [asdict(need) for need in needs],
        "facts": [asdict(fact) for fact in facts],
    }
    return json.dumps(document, indent=2)


def _text(found: Diagnosis, loaded: LoadedConfig | None, needs: Sequence[Need] | None, facts: Sequence[Fact]) -> str:
    lines = [f"etdev {found.etdev}, Python {found.python}, {found.platform}", "", "packages"]
    lines += [f"  {line}" for line in columns([_package_row(package) for package in found.packages])]
    lines += ["", "backends"]
    lines += [f"  {line}" for line in columns([_backend_row(state) for state in found.backends])]
    runtime = f"{found.runtime.reason}, with {', '.join(found.runtime.backends) or 'no delegates'}"
    lines += ["", "runtime", f"  {runtime if found.runtime.available else f'not available: {found.runtime.reason}'}"]
    native = found.native
    what = native.reason if native.available else f"cannot be compiled: {native.reason}: {native.remedy}"
    lines += ["", "native runtime", f"  {what}"]
    if loaded is not None:
        lines += ["", *_needs(loaded, needs or ())]
        lines += [f"  {fact.key}: {fact.message}" for fact in facts]
    return "\n".join(lines)


def _package_row(package: Package) -> tuple[str, ...]:
    if package.version is None:
        return package.name, "-", f"not installed; for {package.purpose}: {package.remedy}"
    if package.refusal is not None:
        return package.name, package.version, f"error: {package.refusal}: {package.remedy}"
    if package.untested:
        return package.name, package.version, f"warning: etdev was tested with {' and '.join(package.tested)}"
    return package.name, package.version, f"for {package.purpose}"


def _backend_row(state: BackendState) -> tuple[str, ...]:
    if not state.available:
        return state.name, "no", state.reason + (f": {state.remedy}" if state.remedy else "")
    runtime = {True: "; the runtime here has this backend", False: "; the runtime here lacks this backend", None: ""}[
        state.registered
    ]
    if state.registered is False and state.native:
        runtime += ", and the native runtime has it"
    return state.name, "yes", f"{state.summary} (devices: {', '.join(state.device_types)}){runtime}"


def _needs(loaded: LoadedConfig, needs: Sequence[Need]) -> Iterator[str]:
    if not needs:
        yield f"{loaded.path.name}: all requirements are installed"
        return
    yield f"{loaded.path.name} has requirements that are missing here"
    for need in needs:
        yield f"  {need.key}: {need.message}"
        if need.remedy:
            yield f"    {need.remedy}"
