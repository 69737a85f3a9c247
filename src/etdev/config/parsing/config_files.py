"""Functions that find config files on disk, and that read a config file as a :class:`Document`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from etdev.config.keys import KeyPath
from etdev.config.parsing.document import MAX_BYTES, START, Document, Position, refuse
from etdev.errors import ConfigError, Problem
from etdev.files import describe_os_error, open_file

DEFAULT_NAMES = ("etdev.toml", "etdev.yaml", "etdev.yml")
SUFFIXES = (".toml", ".yaml", ".yml")
PYPROJECT = "pyproject.toml"
_TOOL: KeyPath = ("tool", "etdev")


def display(path: Path, cwd: Path) -> str:
    """Return the path for messages: relative to the working folder if the path is inside that folder."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def find_config(cwd: Path) -> Path:
    """Return the only config file of a folder. Raises :class:`ConfigError` if it has none or several."""
    found = [cwd / name for name in DEFAULT_NAMES if os.path.isfile(cwd / name)]
    if len(found) > 1:
        names = " and ".join(f"`{path.name}`" for path in found)
        raise _error(f"this folder has several config files: {names}", f"choose one: `-c {found[0].name}`")
    if found:
        return found[0]
    if _is_tool_table(cwd / PYPROJECT):
        return cwd / PYPROJECT
    for name in DEFAULT_NAMES:
        if os.path.isdir(cwd / name):
            return cwd / name  # A folder with this name counts too; reading it reports the error.
    raise _error(
        f"there is no config in {cwd}: no {', '.join(DEFAULT_NAMES)}, and no table `tool.etdev` in a {PYPROJECT}",
        "run `etdev init` to write a config, or use `-c FILE` for a config in another folder",
    )


def has_config(cwd: Path) -> bool:
    """Return True if a folder has one or more config files."""
    return any(os.path.exists(cwd / name) for name in DEFAULT_NAMES) or _is_tool_table(cwd / PYPROJECT)


def lock_name(config: str) -> str:
    """Return the name of the lock for a config file: ``NAME.lock`` for ``NAME.toml``.

    The lock for ``pyproject.toml`` is ``etdev.lock``, because other tools use ``pyproject.toml``, too. Two configs
    whose names differ only in the suffix share a lock.
    """
    return "etdev.lock" if config == PYPROJECT else f"{os.path.splitext(config)[0]}.lock"


def read_document(path: Path, source: str) -> Document:
    """Read one config file. Messages call the file ``source``. Raises :class:`ConfigError`."""
    if os.path.isdir(path):
        raise refuse(source, "this is a folder", None, rule="file", hint="use the path of the config file in it")
    if path.suffix not in SUFFIXES:
        message = "the name of a config file ends in .toml, .yaml or .yml"
        raise refuse(source, message, None, rule="file")
    text = _decode(_read(path, source), source)
    if path.suffix == ".toml":
        from etdev.config.parsing.toml import parse_toml

        document = parse_toml(text, source)
        return _tool_table(document, source) if path.name == PYPROJECT else document
    from etdev.config.parsing.yaml import parse_yaml

    return parse_yaml(text, source)


def _is_tool_table(pyproject: Path) -> bool:
    """Return True if the file has a table ``[tool.etdev]``. Return False for an unreadable file.

    :func:`read_document` reports an unreadable file, if the user selects it with ``-c``.
    """
    if not os.path.isfile(pyproject):
        return False
    try:
        tool = tomllib.loads(pyproject.read_text(encoding="utf-8-sig")).get("tool")
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(tool, dict) and "etdev" in tool


def _read(path: Path, source: str) -> bytes:
    try:
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise refuse(
            source, "there is no such file", None, rule="file", hint="run `etdev init` to write a config"
        ) from error
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise refuse(source, f"cannot read the file: {cause}", None, rule="file", hint=remedy) from error
    if len(content) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**10} KiB, the maximum size of a config"
        raise refuse(source, message, None, rule="file", hint="split it, and join the parts with `extends`")
    return content


def _decode(content: bytes, source: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse(
            source,
            "the file is UTF-16 text, but configs must be UTF-8",
            None,
            rule="file",
            hint="save the file as UTF-8",
        )
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        position = Position(before.count(b"\n") + 1, column)
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8 text"
        raise refuse(source, message, position, rule="file", hint="save the file as UTF-8") from error


def _tool_table(document: Document, source: str) -> Document:
    """Return the table ``[tool.etdev]`` of a ``pyproject.toml`` as a separate document."""
    tool = document.data.get("tool")
    data = tool.get("etdev") if isinstance(tool, dict) else None
    if not isinstance(data, dict):
        raise refuse(source, "this file has no table `tool.etdev`", None, rule="file")
    depth = len(_TOOL)
    places = {path[depth:]: place for path, place in document.places.items() if path[:depth] == _TOOL}
    return Document(data, {(): START, **places})


def _error(message: str, hint: str) -> ConfigError:
    return ConfigError((Problem(message, "", hint=hint, rule="file"),))
