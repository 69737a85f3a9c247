"""Reading data that may be wrong anywhere: what has not the right shape is passed over, since the models report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.keys import nearest


def table_at(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def tables_at(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, table in table_at(data, key).items():
        if isinstance(table, Mapping):
            yield name, table


def list_of_tables(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The elements of a list, with an empty table for each that is not one, so that indices stay right."""
    value = data.get(key)
    return [item if isinstance(item, Mapping) else {} for item in value] if isinstance(value, list) else []


def pair(table: object, first: str, second: str) -> tuple[object, object]:
    if not isinstance(table, Mapping):
        return None, None
    values = table.get(first), table.get(second)
    return (None, None) if any(isinstance(value, bool) for value in values) else values


def is_settled(data: Mapping[str, Any], key: str) -> bool:
    """Whether a table is there, or plainly is not: neither malformed nor misspelled, which the models report."""
    return isinstance(data[key], Mapping) if key in data else nearest(key, data) is None


def there_are(what: str, names: Any, otherwise: str | None = None) -> str | None:
    return f"{what} here: {', '.join(names)}" if names else otherwise
