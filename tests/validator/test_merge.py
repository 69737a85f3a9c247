"""Contents where paths meet."""

from __future__ import annotations

from etdev.validator.domain.merge import Merges
from etdev.validator.domain.numbers import unknown
from etdev.validator.domain.symbols import Symbols


def test_bytes_after_a_write_have_one_symbol_on_a_path_and_after_the_merge() -> None:
    """The extent of a write counts from the start of what was written, wherever the merged content begins."""
    symbols = Symbols()
    merges = Merges(symbols, {}, ())
    whole, part, rows = (symbols.number((name,)) for name in ("whole", "part", "rows"))
    size = unknown(rows)
    extent = (84, (size,), 4)
    # At address 100, one path brings the start of a content, and the other one byte 16 of a dynamic content.
    symbol, begin, _ = merges.cell(1, 100, [(whole, 100, None), (part, 84, extent)])
    assert symbol in merges.partly

    found = merges.fresh(0, (symbol, 100 - begin), 100 - begin, size, lambda *_: False)

    behind = merges.behind(0, part, 84, extent, size)
    assert found == merges.bytes(1, [(whole, 0), (behind, 16)])
