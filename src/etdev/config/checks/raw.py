"""Access to raw data that may be wrong anywhere.

Data of the wrong shape is skipped, since the models report it.
"""

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
    """Return the elements of a list, with an empty table for each non-table, so that indices stay valid."""
    value = data.get(key)
    return [item if isinstance(item, Mapping) else {} for item in value] if isinstance(value, list) else []


def pair(table: object, first: str, second: str) -> tuple[object, object]:
    if not isinstance(table, Mapping):
        return None, None
    values = table.get(first), table.get(second)
    return (None, None) if any(isinstance(value, bool) for value in values) else values


def is_settled(data: Mapping[str, Any], key: str) -> bool:
    """Return whether a table is present and well-formed, or absent and not misspelled. The models report the rest."""
    return isinstance(data[key], Mapping) if key in data else nearest(key, data) is None


def there_are(what: str, names: Any, otherwise: str | None = None) -> str | None:
    return f"{what} here: {', '.join(names)}" if names else otherwise
