"""Key paths, their text form (``targets.cpu.partitioners[0].backend``), and suggestions for misspelled names."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable

KeyPath = tuple[str | int, ...]
"""Path of a value, such as ``("targets", "cpu", "partitioners", 0, "backend")``."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PIECE = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*')"""
_DOTTED = re.compile(rf"[ \t]*{_PIECE}(?:[ \t]*\.[ \t]*{_PIECE})*[ \t]*")


def format_key(path: KeyPath) -> str:
    """Return a key path as TOML text: ``[0]`` for list elements, and names in quotes where TOML requires quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part == "*" else toml_name(part)
            text += f".{name}" if text else name
    return text


def toml_name(name: str) -> str:
    """Return a name as one part of a TOML key, in quotes if TOML requires quotes."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def parse_dotted(text: str) -> tuple[str, ...] | None:
    """Return the names in a dotted TOML key; None if the text is not a dotted key."""
    if not _DOTTED.fullmatch(text):
        return None
    try:
        table = tomllib.loads(f"{text} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    path: list[str] = []
    value: object = table
    while isinstance(value, dict):
        name, value = next(iter(value.items()))
        path.append(name)
    return tuple(path)


def split_assignment(text: str) -> tuple[str, str] | None:
    """Split ``key=value`` at the first ``=`` outside quotes, and return the two parts.

    Return None if the text does not begin with a key and ``=``.
    """
    key = _DOTTED.match(text)
    if key is None or text[key.end() : key.end() + 1] != "=":
        return None
    return key.group(), text[key.end() + 1 :]


def folded(name: str) -> str:
    """Return a name in lower case, with ``-`` replaced by ``_``, for comparisons with other names."""
    return name.casefold().replace("-", "_")


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that the user probably meant; None if no name is similar."""
    candidates = list(valid)
    same = [candidate for candidate in candidates if folded(candidate) == folded(name)]
    if same:
        return same[0]
    by_fold = {folded(candidate): candidate for candidate in candidates}
    close = difflib.get_close_matches(folded(name), by_fold, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def nearest_unset(name: str, valid: Iterable[str], present: Collection[str]) -> str | None:
    """Return the valid key that the user probably meant in a table that has the keys ``present``.

    Of two keys that are equally similar, return the one that is not set.
    """
    candidates = list(valid)
    best = nearest(name, candidates)
    other = nearest(name, [key for key in candidates if key not in present])
    if best is None or other is None or best not in present:
        return best
    return other if _similarity(name, other) >= _similarity(name, best) else best


def _similarity(name: str, key: str) -> float:
    """Return the ratio by which :func:`nearest` compares two names."""
    return difflib.SequenceMatcher(None, folded(key), folded(name)).ratio()


def suggest(
    name: str, valid: Iterable[str], otherwise: str | None = None, written: Callable[[str], str] = "`{}`".format
) -> str | None:
    """Return the hint ``did you mean …?`` with the most similar valid name.

    Return ``otherwise`` if no valid name is similar. ``written`` formats the name, by default in backquotes.
    """
    near = nearest(name, valid)
    return f"did you mean {written(near)}?" if near else otherwise
