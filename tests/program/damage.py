"""Damage to the bytes of a ``.pte`` or ``.ptd``: functions from content and chance to damaged content."""

from __future__ import annotations

import random
from collections.abc import Callable

from program.sites import Site, file_sites

SMALL = (0, 1, 2, 3, 4, 7, 8, 16, -1, -2, -4, -8, -64)
INTERESTING = (*SMALL, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 1 << 16, 1 << 20, 1 << 31)
"""Numbers at the limits of types, and small ones that point to a neighbour."""


def random_bytes(content: bytes, chance: random.Random) -> bytearray:
    """Change one to eight bytes of header and flatbuffer."""
    damaged, end = bytearray(content), _program_size(content)
    for _ in range(chance.randint(1, 8)):
        damaged[chance.randrange(end)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return damaged


def field_aware(content: bytes, chance: random.Random) -> bytearray:
    """Change one number: to a limit, to a neighbour of its old value, or to another number of its kind."""
    found = _all_sites(content)
    kind = chance.choice(sorted({site.kind for site in found}))
    site = chance.choice([site for site in found if site.kind == kind])
    damaged, other = bytearray(content), chance.choice([each for each in found if each.kind == kind])
    values = (chance.choice(INTERESTING), site.read(content) + chance.randint(-9, 9), other.read(content))
    site.write(damaged, chance.choice(values))
    return damaged


def truncated(content: bytes, chance: random.Random) -> bytearray:
    """Truncate the file, somewhere in its flatbuffer or in its segments."""
    return bytearray(content[: chance.randrange(_program_size(content) if chance.random() < 0.5 else len(content))])


def extents(content: bytes, chance: random.Random) -> bytearray:
    """Change the place or size of one or two segments or constants, so that they overlap, or end behind the file."""
    found = [site for site in _all_sites(content) if any(word in site.path for word in _EXTENTS)]
    found = [site for site in found if site.kind == "number"]
    damaged = bytearray(content)
    if not found:
        return field_aware(content, chance)
    for _ in range(chance.randint(1, 2)):
        site = chance.choice(found)
        others = [other.read(content) for other in found if other.code == site.code]
        nearby = site.read(content) + chance.choice((-64, -16, -8, -1, 1, 8, 16, 64))
        site.write(damaged, chance.choice((chance.choice(others), nearby, chance.choice(INTERESTING), len(content))))
    return damaged


KINDS: tuple[Callable[[bytes, random.Random], bytearray], ...] = (random_bytes, field_aware, truncated, extents)
_EXTENTS = ("segments", "constant_segment", "mutable_data", "named_data", "header")

_SITES: dict[bytes, list[Site]] = {}


def _all_sites(content: bytes) -> list[Site]:
    if content not in _SITES:
        _SITES[content] = file_sites(content)
    return _SITES[content]


def _program_size(content: bytes) -> int:
    """Return the end of header and flatbuffer, or of the file if it has no header of a known kind."""
    if content[8:12] == b"FH01":
        return int.from_bytes(content[16:24], "little") + int.from_bytes(content[24:32], "little")
    return int.from_bytes(content[16:24], "little") if content[8:12] == b"eh00" else len(content)
