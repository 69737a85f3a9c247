"""The commands ``etdev config show`` and ``etdev config explain``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, SetOption, VerboseOption
from etdev.cli.rendering.output import TEXT, note, parse_outputs
from etdev.errors import ConfigError

if TYPE_CHECKING:
    from etdev.config.loader import LoadedConfig

KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key such as targets.cpu.budget.file; `*` or any name represents a name that you choose.",
        show_default=False,
    ),
]


def show(
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Omit keys that have their default values. Not with toml, which is complete."),
    ] = False,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Print the effective config: every key, its value and its origin.

    Formats of --output: text, toml (a complete config), json (with origins).
    """
    outputs = parse_outputs(output, allowed=(TEXT, "toml", "json"))
    if changed:
        outputs.refuse_format("toml", "--changed omits keys, but TOML output is the complete config")
    from etdev.backends.opening import open_config
    from etdev.cli.reports import refuse_config
    from etdev.config.describe.show import show_json, show_text, show_toml

    refuse_config(outputs, config)
    loaded = open_config(config, profile=profile, overrides=overrides)
    outputs.write(
        {
            TEXT: partial(show_text, loaded, changed=changed),
            "toml": partial(show_toml, loaded),
            "json": partial(show_json, loaded, changed=changed),
        }
    )
    return 0


def explain(
    key: KeyArgument,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Explain a key: its meaning, its valid values, and the origin of its value. This also works without a config."""
    from etdev.config.describe.explain import explain as explanation

    print(explanation(key, _load_if_any(config, profile, overrides)), end="")
    return 0


def _load_if_any(config: Path | None, profile: str | None, overrides: list[str] | None) -> LoadedConfig | None:
    """Return the config. Return None if there is no valid config, because ``explain`` does not require one."""
    from etdev.backends.opening import open_config
    from etdev.config.parsing.config_files import has_config

    if config is None and not has_config(Path.cwd()):
        return None
    try:
        return open_config(config, profile=profile, overrides=overrides)
    except ConfigError as error:
        if config is not None and error.problems[0].rule == "file":
            raise
        note(f"the config has {len(error.problems)} problem(s), so no values are shown; see `etdev validate`")
        return None
