"""Execution of all paths of a method. A loop runs until an iteration finds no new facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from etdev.validator.domain.join import forget_older, join
from etdev.validator.domain.merge import AGAIN
from etdev.validator.domain.state import State
from etdev.validator.ends import Ends
from etdev.validator.loop import Loop
from etdev.validator.machine import whole
from etdev.validator.reading import NotFollowedError
from etdev.validator.run import Run
from etdev.validator.semantics.operators import Act
from etdev.validator.steps import Steps
from etdev.validator.walk import Side, Step, Walk

_MOST_ROUNDS = 500
"""Maximum number of iterations of a loop."""
_Edge: TypeAlias = tuple[int, int]
"""Pair of blocks, as ``(from, to)``. The edge to the entry comes from -1."""


class Layout:
    """Points of a :class:`Walk` where paths merge."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.ways: dict[int, int] = {}
        """Maps each merge to the number of edges that lead there.

        A merge is a point where paths join, and has the number of its block. The head of a loop has a second merge,
        which joins only the edges from outside. The number of the second merge is larger by the number of blocks.
        """
        self.bits: dict[int, int] = {}
        """Maps each merge in a loop to the bit that represents the merge in bit sets."""
        self.bodies: dict[int, frozenset[int]] = {}
        """Maps the head of each loop to all blocks of the loop."""
        for group in walk.groups:
            self._add(group)
        self.bits[AGAIN] = 1 << len(self.bits)

    def _add(self, group: Sequence[int]) -> None:
        walk, count = self.walk, len(self.walk.blocks)
        for number in group:
            origins = walk.blocks[number].predecessors
            back = sum(walk.is_back(origin, number) for origin in origins)
            outside = len(origins) - back + (number == 0)
            self.ways[number] = 1 + back if back else outside
            self.ways[count + number] = outside
            if back:
                self.bodies[number] = walk.body(number)
        for number in group if walk.is_loop(group) else ():
            for merge in (number, count + number):
                self.bits[merge] = 1 << len(self.bits)

    def loop(self, head: int) -> Loop:
        """Return a new :class:`Loop` for this head, without varying state."""
        count = len(self.walk.blocks)
        inside = {merge for block in self.bodies[head] for merge in (block, count + block)}
        return Loop(head, frozenset({*inside, AGAIN} - {count + head}))

    def innermost(self, block: int) -> int | None:
        """Return the head of the innermost loop around a block, or None outside of loops."""
        around = [(len(body), head) for head, body in self.bodies.items() if block in body]
        return min(around)[1] if around else None


class Paths:
    """Symbolic execution of all blocks of a walk."""

    def __init__(self, run: Run, layout: Layout, steps: Steps, ends: Ends) -> None:
        self._run = run
        self._walk = layout.walk
        self._layout = layout
        self._steps = steps
        self._ends = ends
        self.loops = {head: layout.loop(head) for head in layout.bodies}
        """Maps the head of each loop to the state that varies between iterations."""
        self._inside = frozenset(block for body in layout.bodies.values() for block in body)
        self._rows = self._find_rows()
        self._states: dict[_Edge, State] = {}
        """Maps an edge to the state there, until the block at the end of the edge is executed."""
        self._outside: dict[int, State] = {}
        """Maps the head of each loop to the state before the loop."""

    def run(self) -> None:
        """Execute all blocks of the method."""
        self._ends.check_outside()
        self._ends.enter()
        self._states[-1, 0] = self._run.machine.state
        for group in self._walk.groups:
            if self._walk.is_loop(group):
                self._run_loop(group)
                continue
            (number,) = group
            self._run.machine.state = self._arrive(number)
            if number == self._walk.end:
                self._ends.leave()
                return
            self._run_block(number)
            self._hand_on(number, self._states)

    def _arrive(self, number: int, *found: Mapping[_Edge, State]) -> State:
        """Return the joined state at the start of a block. At the head of a loop, ignore edges from inside the loop.

        In a loop, ``found`` contains the states on the edges to the block.
        """
        origins = [item for item in self._walk.blocks[number].predecessors if not self._walk.is_back(item, number)]
        edges = [(-1, 0)] if number == 0 else []
        edges += [(origin, number) for origin in origins]
        if self._run.in_loop:  # The next iteration needs these states again.
            states = [next(some[edge] for some in found if edge in some).copy() for edge in edges]
        else:
            states = [self._states.pop(edge) for edge in edges]
        outer = number + len(self._walk.blocks)
        for state in states if self._run.in_loop else ():
            forget_older(state, {number, outer})
        return join(self._run.machine, self._run.agreement, outer if number in self.loops else number, states)

    def _hand_on(self, number: int, states: dict[_Edge, State]) -> None:
        successors = self._walk.blocks[number].successors
        for successor in successors[1:]:
            states[number, successor] = self._run.machine.state.copy()
        for successor in successors[:1]:
            states[number, successor] = self._run.machine.state

    def _run_block(self, number: int) -> None:
        self._run.in_body = number in self._inside
        self._run.machine.spend(1 + len(self._walk.blocks[number].steps))
        for step in self._walk.blocks[number].steps:
            self._steps.run(step)
        self._steps.end()

    # Loops

    def _run_loop(self, group: Sequence[int]) -> None:
        """Execute a loop until an iteration finds nothing new.

        The facts and violations of the last iteration hold for all iterations.
        """
        run = self._run
        run.in_loop = True
        violations, reads = list(run.violations), run.reads
        for _ in range(_MOST_ROUNDS):
            known = run.agreement.known
            run.violations[:], run.reads = violations, reads
            inside = self._run_round(group)
            settled = self._settle(group, inside)
            if run.agreement.known != known:
                self.loops.update({number: self._layout.loop(number) for number in group if number in self.loops})
            elif settled:
                break
        else:
            raise NotFollowedError(
                f"the validator needs more than {_MOST_ROUNDS} iterations to follow the method's loops"
            )
        for edge in [edge for edge in self._states if edge[1] in group]:
            del self._states[edge]
        self._states.update({edge: state for edge, state in inside.items() if edge[1] not in group})
        run.in_loop = False

    def _run_round(self, group: Sequence[int]) -> dict[_Edge, State]:
        machine = self._run.machine
        inside: dict[_Edge, State] = {}
        for number in group:
            machine.state = self._arrive(number, inside, self._states)
            if number in self.loops:
                self._start_rows(number)
                self._outside[number] = machine.state
                machine.state = self.loops[number].enter(machine, machine.state)
            self._run_block(number)
            self._hand_on(number, inside)
        return inside

    def _settle(self, group: Sequence[int], inside: Mapping[_Edge, State]) -> bool:
        """Add the facts of an iteration to the loops of ``group``. Return True if no loop learned a new fact."""
        settled = True
        for number in group:
            if number in self.loops:
                origins = self._walk.blocks[number].predecessors
                rounds = [inside[origin, number] for origin in origins if self._walk.is_back(origin, number)]
                outside = self._outside[number]
                settled &= self.loops[number].settle(self._run.machine, self._run.agreement, outside, rounds)
        return settled

    # Rows that a loop appends to a tensor

    def _find_rows(self) -> dict[int, list[Step]]:
        """Map the head of each loop to the instructions that append rows in this loop, but not in an inner loop."""
        found: dict[int, list[Step]] = {}
        for number, block in enumerate(self._walk.blocks):
            for step in block.steps:
                if step.who is Side.BOTH and self._run.facts[0].code[step.before].act is Act.ADD_ROW:
                    head = self._layout.innermost(number)
                    if head is not None:
                        found.setdefault(head, []).append(step)
        return found

    def _start_rows(self, head: int) -> None:
        """Before the first iteration, replace the content of the tensors to which the loop appends rows.

        In both programs, the new content is the symbol of :meth:`~etdev.validator.run.Run.no_rows`, so the old content
        does not matter.
        """
        for step in self._rows.get(head, ()):
            symbol = self._run.no_rows(step.before)
            for side, position in enumerate((step.before, step.after)):
                code = self._run.facts[side].code[position]
                tensor = self._run.facts[side].tensors[code.writes[0]] if code.act is Act.ADD_ROW else None
                if tensor is not None and tensor.place is not None and tensor.value not in self._run.facts[side].roving:
                    self._run.machine.put(side, tensor.place, whole(symbol, tensor.nbytes))
