"""Contents of a program's files, read back with the strict reader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etdev.errors import ProgramError
from etdev.program import Program, flat_tensor
from etdev.program.data_files.joined import read_joined
from etdev.program.data_files.lookups import delegate_lookups, missing_data

_NO_DATA = "pass each file with missing data as `--data FILE.ptd`"


@dataclass(frozen=True)
class Contents:
    """A program and its data, read back from the written files."""

    program: Program | None
    """The program; None if a file cannot be read."""
    problems: tuple[str, ...] = ()
    """The reason why a file cannot be read, or one sentence for each missing item of data."""
    hint: str | None = None
    """Help for the problems; None if there is no help."""
    unknown_lookups: tuple[str, ...] = ()
    """Ids of delegates that may look up data under unknown names."""


def read_contents(
    path: Path, data: Sequence[Path] = (), lookups: Mapping[str, Collection[str]] | None = None
) -> Contents:
    """Read a program back with its ``data`` files, and look for missing data.

    Each item of data that the program needs must be in one of these files. ``lookups`` maps methods to the names of
    data that their delegates look up. ``lookups`` may omit a method if these names are unknown.
    """
    try:
        found = read_joined(path, data)
        held = {item.key for file in data for item in flat_tensor.read(file).named_data}
    except ProgramError as error:
        which = "the file is malformed" if error.where == str(path) else f"its data file {error.where}"
        return Contents(None, (f"{which}: {error.message}",), error.hint)
    missing = tuple(map(str, missing_data(found, held, lookups)))
    return Contents(found, missing, _NO_DATA if missing else None, tuple(_unknown_lookups(found, lookups or {})))


def _unknown_lookups(found: Program, lookups: Mapping[str, Collection[str]]) -> list[str]:
    """Return the ids of delegates whose lookups are unknown.

    The blob of such a delegate does not state the names of the data that the delegate looks up. ``lookups`` does not
    state them, either.
    """
    plans = [plan for plan in found.execution_plan if plan.name not in lookups]
    return sorted({one.id for plan in plans for one in plan.delegates if delegate_lookups(found, one) is None})
