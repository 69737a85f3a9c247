"""Conversion of names of programs and methods to C++ identifiers, comments and string literals."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long main mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast std struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    executorch torch c10 etdev linux unix
    Block CheckMemory Clear DataFiles Error EValue Execute Fail FailFor File FindMethod GetMethod GetPoolUse
    HierarchicalAllocator InputFacts InputMemory Kind Load LoadedMethod LoadMethod MemoryAllocator MemoryManager Method
    MethodFacts MethodMeta OutputFacts Pool PoolUse Problem Program Result SetInput Slot Span Tensor TensorImpl Unload
    data_files io loader methods problem program rt temp_memory temp_pool
    """.split()  # noqa: SIM905 - a paragraph of words
)
"""Names that a namespace of a project must not have: keywords of C++, and names that the project uses."""
_CONSTANT = re.compile(r"k[A-Z]")
"""Pattern that matches the start of a constant's name in a project, such as ``kA``."""


def identifier(name: str) -> str:
    """Return a C++ identifier for a name, with ``_`` for characters that are not allowed."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "program"
    text = f"n{text}" if text[0].isdigit() else text
    return f"{text}_" if text in _KEYWORDS or _CONSTANT.match(text) else text


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a C++ identifier for each name. All identifiers are distinct, and none is in ``taken``."""
    used = set(taken)
    found = []
    for name in names:
        text, number = identifier(name), 2
        while text in used:
            text, number = f"{identifier(name)}_{number}", number + 1
        used.add(text)
        found.append(text)
    return found


def comment(text: str) -> str:
    """Return the text with ``?`` for each character that is unsafe in a comment or a raw string.

    Names in a file may contain any characters, including code.
    """
    return re.sub(r"[^ !#-\[\]-~]", "?", text)


def string_literal(text: str) -> str:
    """Return a C string literal that contains the text's UTF-8 bytes."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'
