"""Parser of TOML text. ``tomllib`` reads the data, and tree-sitter finds the positions of keys and values."""

from __future__ import annotations

import re
import tomllib

from etdev.config.parsing.document import MAX_DEPTH, Document, Position, refuse
from etdev.config.parsing.toml_tree import Duplicate, locate
from etdev.errors import ConfigError, Problem

_AT_LINE = re.compile(r"(?P<cause>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", re.DOTALL)
_AT_END = re.compile(r"(?P<cause>.*) \(at end of document\)", re.DOTALL)
_NAME = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_TOKEN = re.compile(
    rf"(?P<dotted>{_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{{MAX_DEPTH},}})"
    r'|"""(?:\\.|[^\\])*?"""'
    r"|'''.*?'''"
    r'|"(?:\\[^\n]|[^"\\\n])*+"'
    r"|'[^'\n]*+'|\#[^\n]*+|[\w-]++|(?P<open>[\[{])|(?P<close>[\]}])",
    re.DOTALL,
)
"""Pattern of tokens for counting brackets. It matches whole words, so that the scan takes linear time."""
_LONG_NUMBER = re.compile(r"[0-9_]{4300,}")
_WORD = re.compile(r"[A-Za-z_][\w:./-]*")


def parse_toml(text: str, source: str) -> Document:
    """Parse TOML. Raises :class:`ConfigError` with line and column for invalid TOML and for each duplicate key."""
    text = text.replace("\r\n", "\n")
    unclosed = _check_brackets(text, source)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, source, unclosed) from error
    except ValueError as error:
        digits = _LONG_NUMBER.search(text)
        position = _position(text, digits.start()) if digits else None
        raise refuse(source, "this number has too many digits", position, rule="syntax") from error
    places, _ = locate(text)
    return Document(data, places)


def _check_brackets(text: str, source: str) -> int | None:
    """Return the offset of a bracket that is not closed; None if all brackets are closed.

    Raises :class:`ConfigError` for nesting so deep that ``tomllib`` would exceed the recursion limit.
    """
    stack: list[int] = []
    for token in _TOKEN.finditer(text):
        if token["open"]:
            stack.append(token.start())
        if len(stack) > MAX_DEPTH or token["dotted"]:
            message = f"nested more than {MAX_DEPTH} levels deep"
            raise refuse(source, message, _position(text, token.start()), rule="syntax")
        if token["close"] and stack:
            stack.pop()
    return stack[-1] if stack else None


def _syntax_error(message: str, text: str, source: str, unclosed: int | None) -> ConfigError:
    places_and_duplicates = locate(text) if _is_about_duplicates(message) else None
    if places_and_duplicates and (duplicates := places_and_duplicates[1]):
        return ConfigError(tuple(_duplicate_problem(duplicate, source) for duplicate in duplicates))
    if match := _AT_LINE.fullmatch(message):
        position = Position(int(match["line"]), int(match["column"]))
        cause = match["cause"]
    else:
        at_end = _AT_END.fullmatch(message)
        position = _position(text, len(text.rstrip()))
        cause = at_end["cause"] if at_end else message
    rule = "syntax"
    if _is_about_duplicates(message):
        rule, cause = "duplicate-key", "this adds to a table or value that is already complete"
    hint = _syntax_hint(text, position, unclosed)
    return refuse(source, f"not valid TOML: {cause[:1].lower()}{cause[1:]}", position, rule=rule, hint=hint)


def _is_about_duplicates(message: str) -> bool:
    return message.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline table key"))


def _duplicate_problem(duplicate: Duplicate, source: str) -> Problem:
    first = duplicate.first
    return Problem(
        f"`{duplicate.key}` is defined twice; the first time at {source}:{first.line}:{first.column}",
        duplicate.key,
        source,
        duplicate.second.line,
        duplicate.second.column,
        "keep one of them",
        "duplicate-key",
    )


def _syntax_hint(text: str, position: Position, unclosed: int | None) -> str | None:
    line = text.split("\n")[position.line - 1]
    before, rest = line[: position.column - 1], line[position.column - 1 :]
    word = _WORD.match(rest)
    if word and before.rstrip().endswith(("=", "[", ",")):
        if word.group().lower() in ("true", "false"):
            return f"write `{word.group().lower()}`"
        return f'text needs quotes: "{word.group()}"'
    if re.match(r"\s*[\w.-]+\s*:", line) and "=" not in line:
        return "write `key = value` for TOML; for YAML, name the file .yaml"
    if unclosed is not None:
        opened = _position(text, unclosed)
        return f"the `{text[unclosed]}` at line {opened.line}, column {opened.column} is not closed"
    return None


def _position(text: str, offset: int) -> Position:
    line_start = text.rfind("\n", 0, offset) + 1
    return Position(text.count("\n", 0, offset) + 1, offset - line_start + 1)
