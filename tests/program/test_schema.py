"""The tables match the schema in the installed wheel, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from etdev.program import model
from etdev.program.schema import PROGRAM, Data, Field, Many, One, RawBytes, Scalar, Scalars, Table, Text, Union
from program.flatc_json import schema_folder

_CODES = {"bool": "B", "byte": "b", "ubyte": "B", "int": "i", "uint": "I", "uint32": "I"}
_CODES |= {"long": "q", "int64": "q", "uint64": "Q", "double": "d"}
_ENUMS = ("ScalarType", "TensorShapeDynamism", "TensorDataLocation", "DeviceType", "DataLocation")
_DEFINITION = re.compile(r"\b(table|union|enum)\s+(\w+)[^{]*\{([^}]*)\}")


@pytest.fixture(scope="module")
def upstream() -> dict[str, list[str]]:
    """Return the lines of each definition by name."""
    pytest.importorskip("executorch", reason="the schema is in executorch's wheel")
    texts = [(schema_folder() / name).read_text() for name in ("scalar_type.fbs", "program.fbs")]
    text = re.sub(r"//.*", "", "\n".join(texts))
    return {name: re.split(r"[;,]\s*", body.strip().rstrip(";,")) for _, name, body in _DEFINITION.findall(text)}


def _tables(table: Table) -> Iterator[Table]:
    yield table
    for field in table.fields:
        match field.kind:
            case One(table=inner) | Many(table=inner):
                yield from _tables(inner)
            case Union(tables=members):
                for member in members:
                    yield from _tables(member)
            case _:
                pass


TABLES = {table.name: table for table in _tables(PROGRAM)}


def test_no_definition_is_missing(upstream: dict[str, list[str]]) -> None:
    assert upstream.keys() == TABLES.keys() | {"KernelTypes", "InstructionArguments"} | set(_ENUMS)


@pytest.mark.parametrize("name", TABLES)
def test_tables(upstream: dict[str, list[str]], name: str) -> None:
    fields = {field.number: field for field in TABLES[name].fields}
    number = 0
    for line in filter(None, upstream[name]):
        field_name, kind = (part.strip() for part in line.split(":", 1))
        kind = re.sub(r"\s*(=.*|\(.*\))$", "", kind)
        assert fields[number].name == field_name
        assert _matches(fields[number], kind, upstream), (field_name, kind)
        number += 2 if kind in {"KernelTypes", "InstructionArguments"} else 1
    assert TABLES[name].slots == number
    assert max(fields, default=-1) < number


def _matches(field: Field, kind: str, upstream: dict[str, list[str]]) -> bool:
    match field.kind:
        case Scalar(code=code, choices=choices):
            if kind in _ENUMS:
                return code == "b" and _members(upstream[kind]) == {value: each.name for value, each in choices.items()}
            return _CODES[kind] == code and (choices is not None) == (kind == "bool")
        case Text():
            return kind == "string"
        case Scalars(element=element):
            return kind == f"[{kind[1:-1]}]" and _CODES[kind[1:-1]] == element.code
        case RawBytes() | Data():
            return kind == "[ubyte]"
        case One(table=table):
            return kind == table.name
        case Many(table=table):
            return kind == f"[{table.name}]"
        case Union(tables=tables):
            return [table.name for table in tables] == upstream[kind]


def _members(lines: list[str]) -> dict[int, str]:
    pairs = (line.split("=") for line in lines if line.strip())
    return {int(value): name.strip() for name, value in pairs}


def test_item_sizes() -> None:
    torch = pytest.importorskip("torch")
    names = {"BYTE": "uint8", "CHAR": "int8", "SHORT": "int16", "INT": "int32", "LONG": "int64", "HALF": "float16"}
    names |= {"FLOAT": "float32", "DOUBLE": "float64", "BOOL": "bool", "BFLOAT16": "bfloat16", "BITS16": "bits16"}
    names |= {"FLOAT8E5M2": "float8_e5m2", "FLOAT8E4M3FN": "float8_e4m3fn", "UINT16": "uint16", "UINT32": "uint32"}
    names |= {"FLOAT8E5M2FNUZ": "float8_e5m2fnuz", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz", "UINT64": "uint64"}
    names |= {name: name.lower() for name in ("QINT8", "QUINT8", "QINT32", "QUINT4X2", "QUINT2X4")}
    for kind in model.ScalarType:
        assert kind.itemsize == getattr(torch, names[kind.name]).itemsize, kind
