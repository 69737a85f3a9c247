"""Vela's flags and config files, read without importing Vela."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from importlib import metadata
from pathlib import Path

from etdev.backends.base import OptionIssue

DISTRIBUTION = "ethos-u-vela"
_DEFAULT = "Arm/vela.ini"
_OWN_FLAGS = {
    "--accelerator-config": "target",
    "--system-config": "system_config",
    "--memory-mode": "memory_mode",
    "--config": "config",
    "--output-dir": None,
    "--output-format": None,
}
"""Maps each flag that etdev sets to the backend's option for this flag; None if there is no such option."""
_SECTIONS = {"system_config": "System_Config", "memory_mode": "Memory_Mode"}
_FLAG = re.compile(r'"(--[a-z0-9-]+)"')


def version() -> str | None:
    """Return the version of the installed Vela; None if it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def default_config() -> Path | None:
    """Return the path of the config file that comes with Vela; None if Vela is not installed."""
    return _file(f"ethosu/config_files/{_DEFAULT}")


def config_name(config: str | None) -> str:
    """Return the name of a config file, as the value of the flag ``--config``. The program contains this flag.

    The name contains the digest of the file instead of its path. So a build in another folder has the same bytes.
    """
    if config is None:
        return _DEFAULT
    return f"vela-{hashlib.sha256(Path(config).read_bytes()).hexdigest()[:16]}.ini"


def check_flags(flags: Sequence[str]) -> Iterable[OptionIssue]:
    """Yield the problems of the user's additional flags. Report unknown flags only if Vela is installed."""
    known = _known_flags()
    for index, text in enumerate(flags):
        path, flag = ("extra_flags", index), text.partition("=")[0]
        if re.fullmatch(r"--[a-z0-9-]+(=\S+)?", text) is None:
            message = f"{text!r} is not a flag"
            yield OptionIssue(path, message, 'write `--NAME` or `--NAME=VALUE` without spaces: "--optimise=Size"')
        elif flag in _OWN_FLAGS:
            option = _OWN_FLAGS[flag]
            hint = f"use the option `{option}`" if option is not None else "remove it"
            yield OptionIssue(path, f"etdev itself sets the flag {flag}", hint)
        elif known and flag not in known:
            near = difflib.get_close_matches(flag, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`vela --help` lists the flags"
            yield OptionIssue(path, f"vela {version()} has no flag {flag}", hint)


def check_names(path: Path, system_config: str | None, memory_mode: str | None) -> Iterable[OptionIssue]:
    """Yield a problem if the file is not a config file of Vela, and for each name that the file lacks."""
    parser = ConfigParser()
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
    except (OSError, UnicodeDecodeError, ConfigParserError) as error:
        message = f"{path} is not a config file of Vela: {str(error).splitlines()[0]}"
        yield OptionIssue(("config",), message, "use an .ini file with sections [System_Config.X] and [Memory_Mode.X]")
        return
    for option, name in (("system_config", system_config), ("memory_mode", memory_mode)):
        known = [section.partition(".")[2] for section in parser.sections() if section.startswith(_SECTIONS[option])]
        if name is not None and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"names there: {', '.join(known) or 'none'}"
            yield OptionIssue((option,), f"{path} has no section [{_SECTIONS[option]}.{name}]", hint)


def _known_flags() -> frozenset[str]:
    source = _file("ethosu/vela/vela.py")
    return frozenset() if source is None else frozenset(_FLAG.findall(source.read_text(encoding="utf-8")))


def _file(name: str) -> Path | None:
    try:
        path = Path(str(metadata.distribution(DISTRIBUTION).locate_file(name)))
    except metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None
