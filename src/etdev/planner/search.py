"""An exact search for a plan that fits a capacity.

The buffers are placed from the bottom up. Each section of time has a *floor*: nothing more goes below it. The search
picks a section, by rule the one with the lowest floor, and asks which of its buffers is the next there. Any of those
that can lie at the floor may be it, or else all of them lie higher, on top of some buffer that is in use at other times
too, and the section wastes the bytes up to there. Every plan that is pushed down as far as it goes is one path through
these questions, so if all paths end before the capacity holds all buffers, no plan fits.

A path ends where some section's floor and what it has yet to hold exceed the capacity. Where nothing that is left
crosses from one section to the next, the two sides are searched apart. The ideas of canonical plans, of bounds by
section and of splitting are those of Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
Machine Learning", ASPLOS 2023; asking by section rather than by buffer is not.
"""

from __future__ import annotations

from typing import NamedTuple

from etdev.planner.kernel import Table, kernel
from etdev.planner.state import (
    CHOICE,
    FLOORS,
    FRAME,
    LOWS,
    PARENT,
    PART,
    SAVED,
    SECTION,
    STEPS,
    State,
    has_room,
    open_frame,
    split,
    undo,
)
from etdev.planner.tables import Tables

FOUND, NONE, STOPPED = 1, 0, -1
"""How a search ends: with a plan; without, for there is none; before it is known."""

_FAR = 2**62
"""Bytes above every offset: twice ``LARGEST``."""
_WEIGHT = 2**20
"""What counts of buffers are multiplied by before they are divided by weights."""


class Rule(NamedTuple):
    """Which section is asked about next: that of the least floor times ``floor`` less bytes left times ``left``."""

    floor: int
    left: int
    crowd: int = 0
    """1: the one with the fewest answers, over the number of paths that ended in it."""
    rank: int = 0
    """1: of equal ones the one whose first answer comes first; else the one with the fewest bytes to waste."""


@kernel
def next_answer(tables: Tables, state: State, rank: Table, section: int, before: int) -> int:
    """Return the buffer next in rank after ``before`` (-1: none) that fits at the section's floor, or -1."""
    chosen, chosen_rank = -1, len(rank)
    last_rank, last_kind = -1, -1
    if before >= 0:
        last_rank, last_kind = rank[before], tables.kind[before]
    floor = state.floor[section]
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if (
            state.placed[index] == 0
            and state.low[index] == floor
            and rank[index] > last_rank
            and rank[index] < chosen_rank
            and tables.kind[index] != last_kind
        ):
            chosen, chosen_rank = index, rank[index]
    state.used[STEPS] += tables.crowd_start[section + 1] - tables.crowd_start[section]
    return chosen


@kernel
def choose_section(
    tables: Tables,
    state: State,
    rank: Table,
    begin: int,
    end: int,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
) -> int:
    """Return the section to ask about, or -1 if all buffers of the part are placed."""
    chosen, chosen_key, chosen_slack, steps = -1, 0, 0, end - begin
    for section in range(begin, end):
        left = state.left[section]
        if left == 0:
            continue
        floor = state.floor[section]
        slack = capacity - floor - left
        key = by_floor * floor - by_left * left
        if by_crowd:
            answers = 1 if slack > 0 else 0
            for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
                index = tables.crowd[place]
                if state.placed[index] == 0 and state.low[index] == floor:
                    answers += 1
            steps += tables.crowd_start[section + 1] - tables.crowd_start[section]
            key, slack = _WEIGHT * answers // state.weight[section], floor
        if by_rank:
            if chosen >= 0 and key > chosen_key:
                continue
            slack = rank[next_answer(tables, state, rank, section, -1)]
        if chosen < 0 or key < chosen_key or (key == chosen_key and slack < chosen_slack):
            chosen, chosen_key, chosen_slack = section, key, slack
    state.used[STEPS] += steps
    return chosen


@kernel
def next_level(tables: Tables, state: State, section: int) -> int:
    """Return the lowest offset above the floor that a buffer of the section may have, or ``_FAR``."""
    floor, level = state.floor[section], _FAR
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if state.placed[index] == 1:
            continue
        if state.low[index] > floor:
            level = min(level, state.low[index])
            continue
        if tables.pin[index] >= 0:
            return _FAR
        mask = tables.mask[index]
        # Pushed down, it rests on a buffer that is in use together with it, but not in this section.
        for near in range(tables.near_start[index], tables.near_start[index + 1]):
            other = tables.near[near]
            if state.placed[other] == 0 and (section < tables.first[other] or section >= tables.last[other]):
                top = (state.low[other] + tables.height[other] + mask) & ~mask
                if top > floor:
                    level = min(level, top)
        state.used[STEPS] += tables.near_start[index + 1] - tables.near_start[index]
    return level


@kernel
def raise_low(tables: Tables, state: State, index: int, level: int, capacity: int, node: int) -> bool:
    """Forbid a buffer all offsets below a level. Whether it still fits somewhere."""
    mask = tables.mask[index]
    level = (level + mask) & ~mask
    before = state.low[index]
    if level <= before:
        return True
    if tables.pin[index] >= 0 or level + tables.size[index] > capacity:
        state.weight[tables.first[index]] += 1
        return False
    used = state.used[LOWS]
    state.low_trail[2 * used] = index
    state.low_trail[2 * used + 1] = before
    state.used[LOWS] = used + 1
    state.low[index] = level
    for section in range(tables.first[index], tables.last[index]):
        if state.floor[section] == before:
            state.stale[section] = node
    state.used[STEPS] += tables.last[index] - tables.first[index]
    return True


@kernel
def place_buffer(tables: Tables, state: State, index: int, capacity: int, node: int) -> bool:
    """Place a buffer at its lowest offset, below all its neighbours that are not. Whether these still fit."""
    state.placed[index] = 1
    first, last = tables.first[index], tables.last[index]
    for section in range(first, last):
        state.left[section] -= tables.height[index]
        state.stale[section] = node
        if section > first:
            state.cut[section] -= 1
    top = state.low[index] + tables.height[index]
    state.used[STEPS] += last - first + tables.near_start[index + 1] - tables.near_start[index]
    for place in range(tables.near_start[index], tables.near_start[index + 1]):
        other = tables.near[place]
        if (
            state.placed[other] == 0
            and state.low[other] < top
            and not raise_low(tables, state, other, top, capacity, node)
        ):
            return False
    return True


@kernel
def raise_section(tables: Tables, state: State, section: int, level: int, capacity: int, node: int) -> bool:
    """Waste the bytes of a section below a level. Whether its buffers still fit."""
    for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
        index = tables.crowd[place]
        if (
            state.placed[index] == 0
            and state.low[index] < level
            and not raise_low(tables, state, index, level, capacity, node)
        ):
            return False
    return True


@kernel
def lift_floors(tables: Tables, state: State, begin: int, end: int, capacity: int, node: int) -> bool:
    """Find out the floors that are stale. Whether all sections can hold what is left."""
    steps = end - begin
    for section in range(begin, end):
        if state.stale[section] != node or state.left[section] == 0:
            continue
        floor = _FAR
        for place in range(tables.crowd_start[section], tables.crowd_start[section + 1]):
            index = tables.crowd[place]
            if state.placed[index] == 0 and state.low[index] < floor:
                floor = state.low[index]
        steps += tables.crowd_start[section + 1] - tables.crowd_start[section]
        if floor > state.floor[section]:
            used = state.used[FLOORS]
            state.floor_trail[2 * used] = section
            state.floor_trail[2 * used + 1] = state.floor[section]
            state.used[FLOORS] = used + 1
            state.floor[section] = floor
        if floor + state.left[section] > capacity + tables.spare[section]:
            state.weight[section] += 1
            state.used[STEPS] += steps
            return False
    state.used[STEPS] += steps
    return True


@kernel
def is_cut(tables: Tables, state: State, index: int) -> bool:
    """Whether placing the buffer, which has been done, has left sections that nothing crosses."""
    cuts = 0
    for section in range(tables.first[index] + 1, tables.last[index]):
        cuts += state.cut[section] == 0
    return cuts > 0


@kernel
def find_answer(tables: Tables, state: State, rank: Table, base: int, capacity: int) -> tuple[int, int]:
    """Return the next answer to the question of a frame, and the level that all are above; (-1, 0) if there is none."""
    section, before = state.frames[base + SECTION], state.frames[base + CHOICE]
    count = len(rank)
    if before == count:
        return -1, 0
    answer = next_answer(tables, state, rank, section, before)
    if answer >= 0:
        return answer, 0
    room = capacity + tables.spare[section] - state.left[section]
    if state.floor[section] < room:
        level = next_level(tables, state, section)
        if level <= room:
            return count, level
    return -1, 0


@kernel
def give_answer(tables: Tables, state: State, base: int, answer: int, level: int, capacity: int, node: int) -> bool:
    """Act on an answer. Whether what is left may still fit."""
    for which in range(3):
        state.frames[base + SAVED + which] = state.used[which]
    state.frames[base + CHOICE] = answer
    if answer < len(tables.size):
        fits = place_buffer(tables, state, answer, capacity, node)
    else:
        fits = raise_section(tables, state, state.frames[base + SECTION], level, capacity, node)
    part = state.frames[base + PART]
    return fits and lift_floors(tables, state, state.parts[4 * part], state.parts[4 * part + 1], capacity, node)


@kernel
def may_fit(tables: Tables, state: State, capacity: int) -> bool:
    """Whether each buffer for itself, and those of each section together, fit the capacity."""
    for index in range(len(tables.size)):
        if state.low[index] + tables.size[index] > capacity:
            return False
    for section in range(len(tables.spare)):
        if state.floor[section] + state.left[section] > capacity + tables.spare[section]:
            return False
    return True


@kernel
def ask(
    tables: Tables,
    state: State,
    rank: Table,
    base: int,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
) -> bool:
    """See to it that the frame has a question, of the next part if its own is done. Whether there is one."""
    while state.frames[base + SECTION] < 0:
        part = state.frames[base + PART]
        begin, end = state.parts[4 * part], state.parts[4 * part + 1]
        section = choose_section(tables, state, rank, begin, end, capacity, by_floor, by_left, by_crowd, by_rank)
        if section >= 0:
            state.frames[base + SECTION] = section
            break
        following = state.parts[4 * part + 2]
        if following < 0:
            return False
        state.frames[base + PART] = following
        state.frames[base + PARENT] = state.parts[4 * following + 3]
    return True


@kernel
def go_back(tables: Tables, state: State, depth: int) -> int:
    """Take back the answers since the frame that this one, which has no more, comes from. Its depth; -1 for none."""
    parent = state.frames[FRAME * depth + PARENT]
    if parent >= 0:
        for frame in range(depth - 1, parent - 1, -1):
            undo(tables, state, FRAME * frame)
    return parent


@kernel
def go_on(tables: Tables, state: State, depth: int, answer: int) -> bool:
    """Open the frame behind an answer. Whether something is left to be placed there or in a part that follows."""
    part, parent = state.frames[FRAME * depth + PART], depth
    if answer < len(tables.size) and is_cut(tables, state, answer):
        begin, end, following = state.parts[4 * part], state.parts[4 * part + 1], state.parts[4 * part + 2]
        part = split(state, begin, end, following, depth)
        if part < 0:
            return False
        parent = state.parts[4 * part + 3]
    open_frame(state, depth + 1, part, parent)
    return True


@kernel
def search(
    tables: Tables,
    state: State,
    rank: Table,
    capacity: int,
    by_floor: int,
    by_left: int,
    by_crowd: int,
    by_rank: int,
    most_nodes: int,
    most_steps: int,
) -> int:
    """Look for a plan; ``FOUND`` leaves the offsets in ``state.low``. ``rank`` orders the answers to a question.

    It ends after so many answers or steps. Then, and if the rule does not prove, ``STOPPED`` takes the place of
    ``NONE``.
    """
    if not may_fit(tables, state, capacity):
        return NONE
    part = split(state, 0, len(tables.spare), -1, -1)
    if part < 0:
        return FOUND
    open_frame(state, 0, part, -1)
    depth = node = 0
    while ask(tables, state, rank, FRAME * depth, capacity, by_floor, by_left, by_crowd, by_rank):
        answer, level = find_answer(tables, state, rank, FRAME * depth, capacity)
        if state.used[STEPS] > most_steps:
            return STOPPED
        if answer < 0:
            depth = go_back(tables, state, depth)
            if depth < 0:
                # Only from the lowest floor is no plan missed.
                return STOPPED if by_left or by_crowd else NONE
            continue
        node += 1
        if node > most_nodes or not has_room(tables, state, depth):
            return STOPPED
        if not give_answer(tables, state, FRAME * depth, answer, level, capacity, node):
            undo(tables, state, FRAME * depth)
        elif go_on(tables, state, depth, answer):
            depth += 1
        else:
            return FOUND
    return FOUND
