"""Content of a file as flatc prints it, and the model's content in the same form."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

from etdev.program import Program
from etdev.program.schema import PROGRAM, Absence, Data, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union


def schema_folder() -> Path:
    """Return the folder of ``program.fbs`` in the wheel."""
    import executorch.exir._serialize as package

    return Path(next(iter(package.__path__)))


def flatc_json(file: Path, folder: Path) -> dict[str, Any]:
    """Return a file's tables, as flatc reads them: with defaults, and enums as numbers."""
    import executorch.data.bin as package

    flatc, schema = Path(next(iter(package.__path__))) / "flatc", schema_folder() / "program.fbs"
    command = [flatc, "--json", "--strict-json", "--defaults-json", "--raw-binary", "-o", folder, schema, "--", file]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    text = (folder / f"{file.stem}.json").read_text().replace(": -inf", ": -Infinity").replace(": inf", ": Infinity")
    found: dict[str, Any] = json.loads(text)
    return found


def our_json(program: Program) -> dict[str, Any]:
    """Return the same from the model."""
    fields = {field.name: getattr(program, field.name) for field in PROGRAM.fields}
    fields["segments"] = tuple((segment.offset, len(segment.data)) for segment in program.segments)
    return _table(PROGRAM, fields)


def _table(table: Table, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, item in zip(table.fields, table.split(value), strict=True):
        kind = field.kind
        if field.absence is Absence.OMITTED and item in (None, ()):
            continue
        if isinstance(kind, Union):
            member = kind.tables[kind.tag_of(item) - 1]
            found[f"{field.name}_type"] = member.name
            found[field.name] = _table(member, item)
        else:
            found[field.name] = _plain(kind, item)
    return found


def _plain(kind: Any, item: Any) -> Any:
    match kind:
        case Scalar(choices=choices):
            return item if choices is None or isinstance(item, bool) else item.name
        case Text():
            return item
        case RawBytes() | Data():
            return list(bytes(item))
        case Scalars():
            return list(item)
        case One(table=table):
            return _table(table, item)
        case Many(table=table):
            return [_table(table, each) for each in item]
    raise AssertionError(kind)


def same(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Return paths at which they differ. flatc prints floats with twelve digits."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = theirs.keys() | ours.keys()
        lists = [same(theirs.get(key), ours.get(key), f"{path}.{key}") for key in sorted(keys)]
        return [difference for found in lists for difference in found]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        lists = [same(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(theirs, ours, strict=True))]
        return [difference for found in lists for difference in found]
    if isinstance(theirs, float) and isinstance(ours, float) and math.isclose(theirs, ours, rel_tol=1e-11):
        return []
    return [] if theirs == ours and type(theirs) is type(ours) else [f"{path}: flatc {theirs!r}, etdev {ours!r}"]
