"""Sentences on settings that differ between two builds, in the words of the config and of the command line.

Most settings are keys of the config, and a sentence names the key. Some facts of a build are not keys
(:mod:`etdev.pipeline.cache.facts`), and this module has their phrases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

Settings = Mapping[str, object]
"""Values by flattened key, as in :attr:`~etdev.pipeline.cache.entries.Facts.settings`."""

_ABSENT = object()
_ENTRY = re.compile(r"(?P<list>.+)\[\d*\]")


class Change(NamedTuple):
    """A setting that differs, and a sentence on the difference."""

    name: str
    message: str


def setting_changes(was: Settings, now: Settings, target: str) -> Iterator[Change]:
    """Yield a change for each setting of a target that differs between an earlier build and the current one."""
    for key in sorted({*was, *now}):
        old, new = was.get(key, _ABSENT), now.get(key, _ABSENT)
        entry = _ENTRY.fullmatch(key)
        if old != new and not (entry and entry["list"] in _SETS) and not _is_told_by_entries(key, was, now):
            yield _change(key, old, new, target)
    for name, (what, phrase) in _SETS.items():
        before, after = _entries(was, name), _entries(now, name)
        yield from (Change(name, phrase(item, True)) for item in after if item not in before)
        yield from (Change(name, phrase(item, False)) for item in before if item not in after)
        if before != after and set(before) == set(after):
            yield Change(name, f"{what} are in another order")


def shown(value: object) -> str:
    """Return the value of a setting as text for use in a sentence."""
    return "not set" if value is _ABSENT else json.dumps(value)


def _change(key: str, old: object, new: object, target: str) -> Change:
    if key.endswith(("[]", "{}")):
        name = _config_key(key[:-2], target)
        return Change(
            name, f"{name} is not set, and was empty" if new is _ABSENT else f"{name} is empty, and was not set"
        )
    for prefix, phrase in _PHRASES.items():
        if key.startswith(prefix):
            name = phrase.format(key[len(prefix) :])
            return Change(key, f"{name} is {shown(new)}, and was {shown(old)}")
    for prefix, (phrase, used) in _DIGESTS.items():
        if key.startswith(prefix):
            return Change(key, f"{phrase.format(key[len(prefix) :])} {_digest_change(old, new, used)}")
    name = _config_key(key, target)
    return Change(name, f"{name} is {shown(new)}, and was {shown(old)}")


def _digest_change(old: object, new: object, used: str) -> str:
    """Return a phrase for a file that changed, or that only one of two builds used.

    For example, a build with --no-verify uses no baseline.
    """
    if old in (None, _ABSENT):
        return f"is {used} now, and was not before"
    if new in (None, _ABSENT):
        return f"is not {used} now, and was before"
    return "has changed"


def _config_key(key: str, target: str) -> str:
    """Return the key of the config from which a setting comes."""
    for prefix, place in _COPIES.items():
        if key.startswith(prefix):
            return f"targets.{target}.{place}{key[len(prefix) :]}"
    return key.replace("targets.this", f"targets.{target}", 1)


def _is_told_by_entries(key: str, was: Settings, now: Settings) -> bool:
    """Return True if ``key`` marks a table or list that is empty in one build, but has entries in the other build.

    The change of ``key`` then need not be reported, because the changes of the entries are.
    """
    if not key.endswith(("[]", "{}")):
        return False
    begins = key[:-2] + ("[" if key.endswith("[]") else ".")
    return any(other != key and other.startswith(begins) for other in (*was, *now))


def _entries(settings: Settings, name: str) -> list[object]:
    """Return the entries of a flattened list."""
    found = ((_ENTRY.fullmatch(key), value) for key, value in settings.items() if not key.endswith("[]"))
    return [value for match, value in found if match and match["list"] == name]


def _stated(key: object, there: bool) -> str:
    return f"the config sets {key}, and did not before" if there else f"the config does not set {key}, and did before"


def _form(form: object, there: bool) -> str:
    can, could = ("can", "could not") if there else ("cannot", "could")
    return f"the lowering {can} use the form `{form}`, and {could} before"


def _required(check: object, there: bool) -> str:
    return f"the check `{check}` is {'' if there else 'not '}required, and was{' not' if there else ''} before"


_SETS: Mapping[str, tuple[str, Callable[[object, bool], str]]] = {
    "stated": ("the keys that the config sets", _stated),
    "forms": ("the forms of the lowering", _form),
    "run.require": ("the required checks", _required),
}
"""Maps a setting that is a list of names to a noun for the list, and to a function that returns a sentence.

The function takes a name, and a bool: True if the name was added to the list, False if it was removed.
"""
_PHRASES = {
    "bases.": "the folder of the modules in {}",
    "run.verify": "verification (off with --no-verify)",
    "run.device map.": "the place of {} in --device-map",
    "run.devices.cuda": "the list of this machine's CUDA devices",
    "run.devices.CUDA_VISIBLE_DEVICES": "the environment variable CUDA_VISIBLE_DEVICES",
    "run.machine": "this machine",
    "banks.room": "the size of all memory banks together",
    "ram.counted": "the counting of the runtime's objects as RAM",
}
"""Maps the beginning of a fact's key to a noun for the fact. The rest of the key replaces ``{}`` in the noun."""
_DIGESTS = {
    "run.baseline": ("the baseline", "compared"),
    "run.native libraries.": ("the native library {}", "used"),
}
"""Maps the beginning of a fact's key to a noun and a participle, as in *the baseline is compared*.

The values of these facts are digests, which sentences do not show. The rest of the key replaces ``{}`` in the noun.
"""
_COPIES = {
    "banks.alignment": "memory.alignment",
    "banks.order": "memory.order",
    "banks.io": "io",
    "banks.elide": "elide",
}
"""Maps the key of a fact to the target's key from which the value of the fact is copied."""
