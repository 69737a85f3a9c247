"""Generation of C arrays with the contents of files."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_WORD = 8
_IN_LINE = 5
_LINES = 4096


def c_array(content: bytes, name: str, alignment: int, comment: str) -> Iterator[bytes]:
    """Yield the parts of a C11 file that defines an array called ``name`` with the content.

    The elements are of type ``uint64_t``, because compilers read them several times as fast as single bytes. The last
    element is padded with zeros. ``alignment`` is the array's alignment in bytes. The file begins with ``comment``.
    """
    words = -(-len(content) // _WORD)
    yield (
        f"// {comment} The runtime requires little-endian memory, too.\n#include <stdint.h>\n\n"
        "#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
        '#error "the bytes are in little-endian order"\n#endif\n\n'
        f"extern const uint64_t {name}[{words}];\n\n_Alignas({alignment}) const uint64_t {name}[{words}] = {{\n"
    ).encode()
    step = _WORD * _IN_LINE * _LINES
    for start in range(0, len(content), step):
        yield _lines(content[start : start + step])
    yield b"};\n"


def _lines(content: bytes) -> bytes:
    words = array("Q", content + bytes(-len(content) % _WORD))
    numbers = [f"{word:#x}," for word in words]
    rows = (" ".join(numbers[start : start + _IN_LINE]) for start in range(0, len(numbers), _IN_LINE))
    return "".join(f"    {row}\n" for row in rows).encode()
