"""Check of user-chosen names in profiles and overrides. Only names that a config file defines are valid.

A profile declares a new name with ``new = true``. Without this rule, a misspelled target in a profile would silently
define another target. The intended target would not get these settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etdev.config.checks.model import meant_source
from etdev.config.describe.notation import short
from etdev.config.issues import CONFLICT, UNKNOWN_NAME, WRONG_TYPE, Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import Layer
from etdev.config.raw import Raw

NAMED_TABLES = {
    "methods": "method",
    "quantize": "quantization scheme",
    "targets": "target",
    "deploy": "deployment",
}
"""Config tables whose entries are tables with user-chosen names. Each table maps to the noun for one of its entries."""
NEW = "new"
"""Key with which a profile declares a name as new."""
_NO_TABLES = {"constants": "constant method"}
"""Config tables whose entries are plain values with user-chosen names. Each table maps to the noun for one entry.

Such an entry cannot contain the key ``new``.
"""


@dataclass(frozen=True, slots=True)
class ProfileNames:
    """Result of checking a profile's names: the issues, and the profile's data without the key ``new``."""

    data: Mapping[str, Any]
    spent: tuple[KeyPath, ...]
    """Paths of the keys ``new`` that were removed from the data."""
    issues: tuple[Issue, ...]


def check_profile_names(profile: Raw, files: Raw) -> ProfileNames:
    """Check the names in a profile: report names that no config file defines, and wrong uses of the key ``new``."""
    data = dict(profile.table)
    spent: list[KeyPath] = []
    issues: list[Issue] = []
    for table, word in NAMED_TABLES.items():
        entries = dict(profile[table].table)
        known = _names_in(files, table)
        for entry in profile[table].tables:
            if NEW in entry:
                entries[entry.name] = {key: value for key, value in entry.table.items() if key != NEW}
                spent.append(entry[NEW].path)
            issues += _profile_issues(entry, word, known)
        if entries:
            data[table] = entries
    return ProfileNames(data, tuple(spent), tuple(issues))


def _profile_issues(entry: Raw, word: str, known: Collection[str] | None) -> Iterator[Issue]:
    new = entry[NEW]
    if new.value is not None and not isinstance(new.value, bool):
        yield new.issue(f"is {short(new.value)}; expected true or false", WRONG_TYPE)
    elif known is None:
        return
    elif new.value and entry.name in known:
        hint = f"remove `{NEW}`, or use another name for the new {word}"
        yield new.issue(f"is true, but a file defines this {word}", CONFLICT, hint)
    elif not new.value and entry.name not in known:
        yield _unknown(entry.path, word, known, f"for a new {word}, set `{NEW}` to true in this table")


def override_issues(
    path: KeyPath, value: object, below: Raw, profiles: Mapping[str, Mapping[str, Any]]
) -> Iterator[Issue]:
    """For each name in an override, yield an issue if the lower layers do not define the name."""
    table = str(path[0])
    word = {**NAMED_TABLES, **_NO_TABLES}.get(table)
    known = None if word is None else _names_in(below, table)
    if word is None or known is None:
        return
    names = path[1:2] if len(path) > 1 else value if isinstance(value, Mapping) else ()
    for name in names:
        if name not in known:
            adding = [profile for profile, data in profiles.items() if name in Raw(data)[table]]
            remedy = f"add the new {word} to the config file"
            if adding:
                remedy = f"use `--profile {adding[0]}`, which defines this {word}"
            yield _unknown((table, str(name)), word, () if adding else known, remedy)


def without_new(merged: Layer) -> Layer:
    """Remove the key ``new`` from a profile's entry if the merged data also defines the entry outside of profiles.

    For example, remove it from the target ``[profiles.NAME.targets.X]`` if ``[targets.X]`` exists, too.
    """
    config = Raw(merged.data)
    profiles = dict(config["profiles"].table)
    spent: set[KeyPath] = set()
    for profile in config["profiles"].tables:
        tables = dict(profile.table)
        for table in NAMED_TABLES:
            defined = [entry for entry in profile[table].tables if entry.name in config[table]]
            spent.update(entry[NEW].path for entry in defined)
            if defined:
                plain = {entry.name: {key: entry.table[key] for key in entry.table if key != NEW} for entry in defined}
                tables[table] = {**profile[table].table, **plain}
        profiles[profile.name] = tables
    marks = {path: mark for path, mark in merged.marks.items() if path not in spent}
    return Layer({**merged.data, "profiles": profiles}, marks) if profiles else merged


def _names_in(config: Raw, table: str) -> Collection[str] | None:
    """Return the names of the entries in a config table.

    Return None if the table is malformed, misspelled or missing. Other checks report such a table.
    """
    if not config.is_settled(table):
        return None
    if table == "methods" and meant_source(config) == "pt2":
        return None  # A saved program has one method, which need not be declared; `check_methods` knows its name.
    names = config[table].table
    return None if table in ("methods", "targets") and not names else names


def _unknown(path: KeyPath, word: str, known: Collection[str], otherwise: str) -> Issue:
    near = nearest(str(path[1]), known)
    listed = ", ".join(known)
    here = f"{word}s here: {listed}; " if listed else ""
    hint = f"did you mean `{near}`? {otherwise[:1].upper()}{otherwise[1:]}" if near else f"{here}{otherwise}"
    return Issue(path, f"`{format_key(path)}`: no config file defines this {word}", UNKNOWN_NAME, hint)
