"""Positions of keys and values in a TOML text, and duplicate keys, found in tree-sitter's syntax tree."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from etdev.config.keys import KeyPath, format_key
from etdev.config.parsing.document import START, Place, Position

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that is defined twice."""

    key: str
    first: Position
    second: Position


def locate(text: str) -> tuple[dict[KeyPath, Place], list[Duplicate]]:
    """Return the positions of all keys and values in the text, and the text's duplicate keys.

    Never raises an error: parts that cannot be read are omitted.
    """
    import tree_sitter
    import tree_sitter_toml

    encoded = text.encode("utf-8")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_toml.language()))
    surveyor = _Surveyor(encoded)
    surveyor.survey(parser.parse(encoded).root_node)
    return surveyor.places, surveyor.duplicates


class _Surveyor:
    """Visitor of the syntax tree that collects positions and duplicate keys.

    It applies TOML statements in order, because each statement affects the tables that later statements may extend.
    """

    def __init__(self, text: bytes) -> None:
        self.places: dict[KeyPath, Place] = {(): START}
        self.duplicates: list[Duplicate] = []
        self._lines = _Lines(text)
        self._elements: dict[KeyPath, int] = {}
        """Maps the key of an array of tables to the number of its elements found so far."""
        self._open: set[KeyPath] = set()
        """Tables that exist only as parents in longer headers. A later header may still define such a table."""
        self._dotted: dict[KeyPath, int] = {}
        """Tables that a dotted key created. Each table maps to the number of the block that contains this dotted key.

        Only statements in this block may add keys to the table.
        """
        self._block = 0
        self._repeated: set[KeyPath] = set()
        """Duplicate tables and keys found so far; keys inside a duplicate table are not reported."""

    def survey(self, root: Node) -> None:
        for node in root.named_children:
            if node.type == "pair":
                self._pair(node, ())
            elif node.type in ("table", "table_array_element"):
                self._block += 1
                table = self._header(node, array=node.type == "table_array_element")
                for child in node.named_children:
                    if child.type == "pair":
                        self._pair(child, table)

    def _header(self, node: Node, *, array: bool) -> KeyPath:
        opening = self._lines.position(node)
        pieces = _pieces(node.named_children[0]) if node.named_children else []
        path: KeyPath = ()
        for index, (name, piece) in enumerate(pieces):
            path = (*path, name)
            position = self._lines.position(piece)
            if index < len(pieces) - 1:
                if path not in self.places:
                    self.places[path] = Place(position, position)
                    self._open.add(path)
            elif not array:
                self._declare(path, position, opening)
            elif path not in self.places:
                self.places[path] = Place(position, opening)
                self._elements[path] = 0
            elif path not in self._elements:
                self._duplicate(path, position)
            if path in self._elements:
                if array and index == len(pieces) - 1:
                    self._elements[path] += 1
                    self.places[(*path, self._elements[path] - 1)] = Place(opening, opening)
                path = (*path, self._elements[path] - 1)
        return path

    def _declare(self, path: KeyPath, position: Position, opening: Position) -> None:
        if path in self.places and path not in self._open:
            self._duplicate(path, position)
            return
        self._open.discard(path)
        self.places[path] = Place(position, opening)

    def _pair(self, node: Node, table: KeyPath) -> None:
        if len(node.named_children) < 2:
            return
        key, value = node.named_children[0], node.named_children[1]
        pieces = _pieces(key)
        path = table
        for name, piece in pieces[:-1]:
            path = (*path, name)
            position = self._lines.position(piece)
            if path not in self.places:
                self.places[path] = Place(position, position)
                self._dotted[path] = self._block
            elif self._dotted.get(path) != self._block:
                self._duplicate(path, position)
        for name, piece in pieces[-1:]:
            path = (*path, name)
            position = self._lines.position(piece)
            if path in self.places:
                self._duplicate(path, position)
            else:
                self.places[path] = Place(position, self._lines.position(value))
                self._value(value, path)

    def _value(self, node: Node, path: KeyPath) -> None:
        if node.type == "inline_table":
            for child in node.named_children:
                if child.type == "pair":
                    self._pair(child, path)
        elif node.type == "array":
            elements = [child for child in node.named_children if child.type != "comment"]
            for index, element in enumerate(elements):
                position = self._lines.position(element)
                self.places[(*path, index)] = Place(position, position)
                self._value(element, (*path, index))

    def _duplicate(self, path: KeyPath, position: Position) -> None:
        if not any(path[:length] in self._repeated for length in range(len(path))):
            self.duplicates.append(Duplicate(format_key(path), self.places[path].key, position))
        self._repeated.add(path)


class _Lines:
    """Converter from tree-sitter's positions to positions in characters.

    Tree-sitter counts rows from 0, and columns in bytes.
    """

    def __init__(self, text: bytes) -> None:
        self._lines = text.split(b"\n")
        self._columns: dict[int, list[int]] = {}

    def position(self, node: Node) -> Position:
        row, column = node.start_point
        if row not in self._columns:
            line = self._lines[row]
            begins = (byte & 0xC0 != 0x80 for byte in line)
            self._columns[row] = [] if line.isascii() else list(accumulate(begins, initial=0))
        columns = self._columns[row]
        return Position(row + 1, (columns[column] if columns else column) + 1)


def _pieces(key: Node) -> list[tuple[str, Node]]:
    """Return the names in a key, each with its node. A dotted key has several names.

    In tree-sitter's tree, the node of ``a.b.c`` contains the node of ``a.b``.
    """
    pieces: list[tuple[str, Node]] = []
    while key.type == "dotted_key":
        *inner, last = key.named_children
        pieces.append((_name(last), last))
        if not inner:
            break
        key = inner[0]
    else:
        pieces.append((_name(key), key))
    return pieces[::-1]


def _name(node: Node) -> str:
    text = (node.text or b"").decode("utf-8", "replace")
    if node.type == "bare_key":
        return text
    if text.startswith('"') and "\\" in text:
        try:
            return next(iter(tomllib.loads(f"{text} = 0")))
        except tomllib.TOMLDecodeError:
            return text
    return text[1:-1]
