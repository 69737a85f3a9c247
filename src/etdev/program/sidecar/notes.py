"""Notes of a sidecar on the instructions and the state of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the model's code."""

    file: str
    """Path of the file, with ``/`` as separator.

    The path is relative to the project. For an installed package, it is relative to the package's folder.
    """
    line: int
    """Line number, starting at 1."""
    function: str
    text: str
    """Text of the line without indentation. Empty if the file could not be read during export."""

    @property
    def place(self) -> str:
        """File and line, such as ``model.py:20``."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return self.place + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class OutputNote:
    """Note on the op that computes an output of a delegate call."""

    module: str | None
    """Path of the op's module, such as ``layers.0``; None if it is not known."""
    source: Source | None
    """Line of the model's code; None if it is not known."""


@dataclass(frozen=True, slots=True)
class StateNote:
    """Note on a tensor that keeps its content from one call to the next."""

    value: int
    """Value index."""
    name: str
    """Name in the user's module, such as ``layers.0.cache``.

    State of the same name in several methods is one buffer in the module. The config decides whether the methods share
    that state.
    """
    initialized: bool
    """True if the file contains the initial value of this state. Otherwise, the state starts as zeros."""


@dataclass(frozen=True, slots=True)
class MethodNotes:
    """Notes on one method. If a map lacks an instruction, the fact about that instruction is unknown."""

    delegate_inputs: Mapping[int, int] = field(default_factory=dict)
    """Maps a delegate call to its number of inputs. A call's arguments are the inputs, then the outputs."""
    state: tuple[StateNote, ...] = ()
    """State, in the order of the value indices."""
    sources: Mapping[int, Source] = field(default_factory=dict)
    """Maps an instruction to a line of the model's code. A delegate call has the line of the delegate's last op."""
    debug_handles: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Maps an instruction to the debug handles of the ops that it computes. An ``ETRecord`` uses the same handles."""
    modules: Mapping[int, str] = field(default_factory=dict)
    """Maps an instruction to the path of its module, such as ``layers.0.attention``; empty for the model itself.

    A delegate call has the path of the smallest module that contains all of the delegate's ops.
    """
    outputs: Mapping[int, tuple[OutputNote, ...]] = field(default_factory=dict)
    """Maps a delegate call to the notes on its outputs, in the order of the call's arguments.

    Use :meth:`outputs_of` to find the note on a value.
    """
    data_names: tuple[str, ...] = ()
    """Names of the data that the method's delegates look up."""

    @property
    def instructions(self) -> set[int]:
        """Indices of the instructions that have notes."""
        return {*self.delegate_inputs, *self.sources, *self.debug_handles, *self.modules, *self.outputs}

    def outputs_of(self, call: int, arguments: Sequence[int]) -> dict[int, OutputNote]:
        """Map the outputs of a delegate call to the notes on them; empty if the outputs or the notes are unknown.

        ``call`` is the position of the call, and ``arguments`` are the values of its arguments.
        """
        found = self.outputs.get(call, ())
        values = arguments[self.delegate_inputs.get(call, len(arguments)) :]
        return dict(zip(values, found, strict=True)) if len(values) == len(found) else {}

    def renumbered(self, old_to_new: Mapping[int, int | None]) -> MethodNotes:
        """Return the notes for a changed list of instructions. See :meth:`Sidecar.renumbered`."""
        return MethodNotes(
            delegate_inputs=_renumbered(self.delegate_inputs, old_to_new, _only_one),
            state=self.state,
            sources=_renumbered(self.sources, old_to_new, lambda first, _: first),
            debug_handles=_renumbered(
                self.debug_handles, old_to_new, lambda first, second: tuple(dict.fromkeys((*first, *second)))
            ),
            modules=_renumbered(self.modules, old_to_new, lambda first, _: first),
            outputs=_renumbered(self.outputs, old_to_new, lambda first, _: first),
            data_names=self.data_names,
        )


def _renumbered(
    notes: Mapping[int, _T], old_to_new: Mapping[int, int | None], merge: Callable[[_T, _T], _T]
) -> dict[int, _T]:
    found: dict[int, _T] = {}
    for old, note in sorted(notes.items()):
        new = old_to_new[old]
        if new is not None:
            found[new] = merge(found[new], note) if new in found else note
    return dict(sorted(found.items()))


def _only_one(first: int, second: int) -> int:
    raise ValueError(f"two delegate calls, with {first} and {second} inputs, became one instruction")


def noted_inputs(notes: Mapping[str, MethodNotes]) -> dict[str, Mapping[int, int]]:
    """Return :attr:`MethodNotes.delegate_inputs` of each method."""
    return {name: each.delegate_inputs for name, each in notes.items()}
