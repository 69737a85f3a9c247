"""Check of the user's own names in profiles and overrides: they may use only names that a file defines.

A profile declares a new name with ``new = true``. Without this rule, a misspelled target would be a new target, and the
gate that was meant would not apply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etdev.config.checks.model import meant_source
from etdev.config.checks.raw import is_settled, table_at, tables_at
from etdev.config.describe.notation import short
from etdev.config.issues import CONFLICT, UNKNOWN_NAME, WRONG_TYPE, Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import Layer

NAMED_TABLES = {
    "methods": "method",
    "quantize": "quantization scheme",
    "targets": "target",
    "deploy": "deployment",
}
"""Tables of tables whose names are the user's own, with the word for one entry."""
NEW = "new"
"""Key by which a profile declares a name as new."""
_NO_TABLES = {"constants": "constant method"}
"""Tables of named values, which have no place for the key ``new``."""


@dataclass(frozen=True, slots=True)
class ProfileNames:
    """Names that a profile uses: the issues with them, and the profile's data without the key ``new``."""

    data: Mapping[str, Any]
    spent: tuple[KeyPath, ...]
    """Paths of ``new``, which has its effect here and is removed."""
    issues: tuple[Issue, ...]


def check_profile_names(profile: Mapping[str, Any], files: Mapping[str, Any]) -> ProfileNames:
    """Compare the names in a profile with those that the files define."""
    data = dict(profile)
    spent: list[KeyPath] = []
    issues: list[Issue] = []
    for table, word in NAMED_TABLES.items():
        entries = dict(table_at(profile, table))
        known = _names_in(files, table)
        for name, entry in tables_at(profile, table):
            path: KeyPath = (table, name)
            if NEW in entry:
                entries[name] = {key: value for key, value in entry.items() if key != NEW}
                spent.append((*path, NEW))
            issues += _profile_issues(path, word, entry.get(NEW), known)
        if entries:
            data[table] = entries
    return ProfileNames(data, tuple(spent), tuple(issues))


def _profile_issues(path: KeyPath, word: str, new: object, known: Collection[str] | None) -> Iterator[Issue]:
    key = (*path, NEW)
    if new is not None and not isinstance(new, bool):
        yield Issue(key, f"`{format_key(key)}` is {short(new)}; expected true or false", WRONG_TYPE)
    elif known is None:
        return
    elif new and path[1] in known:
        message = f"`{format_key(key)}` is true, but a file defines this {word}"
        yield Issue(key, message, CONFLICT, f"remove `{NEW}`, or give the new {word} another name")
    elif not new and path[1] not in known:
        yield _unknown(path, word, known, f"for a new {word}, set `{NEW}` to true in this table")


def override_issues(
    path: KeyPath, value: object, below: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]]
) -> Iterator[Issue]:
    """Yield an issue for each name in an override that nothing ``below`` it defines."""
    table = str(path[0])
    word = {**NAMED_TABLES, **_NO_TABLES}.get(table)
    known = None if word is None else _names_in(below, table)
    if word is None or known is None:
        return
    names = path[1:2] if len(path) > 1 else value if isinstance(value, Mapping) else ()
    for name in names:
        if name not in known:
            adding = [profile for profile, data in profiles.items() if name in table_at(data, table)]
            remedy = f"add a new {word} to the config file"
            if adding:
                remedy = f"add `--profile {adding[0]}`, which defines this {word}"
            yield _unknown((table, str(name)), word, () if adding else known, remedy)


def without_new(merged: Layer) -> Layer:
    """Remove ``new`` from the profiles' tables that the merged data define."""
    profiles = dict(table_at(merged.data, "profiles"))
    spent: set[KeyPath] = set()
    for profile, data in tables_at(merged.data, "profiles"):
        tables = dict(data)
        for table in NAMED_TABLES:
            entries = dict(table_at(data, table))
            defined = [name for name, _ in tables_at(data, table) if name in table_at(merged.data, table)]
            for name in defined:
                entries[name] = {key: value for key, value in entries[name].items() if key != NEW}
                spent.add(("profiles", profile, table, name, NEW))
            if defined:
                tables[table] = entries
        profiles[profile] = tables
    marks = {path: mark for path, mark in merged.marks.items() if path not in spent}
    return Layer({**merged.data, "profiles": profiles}, marks) if profiles else merged


def _names_in(data: Mapping[str, Any], table: str) -> Collection[str] | None:
    """Return the names that a table defines; None if it is malformed, misspelled or missing.

    Other checks report such a table.
    """
    names = table_at(data, table)
    if not is_settled(data, table):
        return None
    if table == "methods" and meant_source(data) == "pt2":
        return None  # A saved program has one method, which need not be declared; `check_methods` knows its name.
    return None if table in ("methods", "targets") and not names else names


def _unknown(path: KeyPath, word: str, known: Collection[str], otherwise: str) -> Issue:
    near = nearest(str(path[1]), known)
    listed = ", ".join(known)
    here = f"{word}s here: {listed}; " if listed else ""
    hint = f"did you mean `{near}`? {otherwise[:1].upper()}{otherwise[1:]}" if near else f"{here}{otherwise}"
    return Issue(path, f"`{format_key(path)}` names a {word} that no file defines", UNKNOWN_NAME, hint)
