"""ExecuTorch's planner for banks, ``exir/banked_memory_planning.py: BankedGreedy`` of executorch 1.5, for comparison.

Buffers are placed by decreasing size, pinned ones first. Each buffer goes into the first bank that has room. A bank
has room if one of its objects has room (see :mod:`etdev.planner.greedy`), or if a new object fits into the bank.
"""

from __future__ import annotations

from collections.abc import Sequence

from etdev.planner.banks.problem import BankedProblem
from etdev.planner.greedy import SharedObject, find_home, order


def banked_greedy(problem: BankedProblem) -> tuple[list[int], list[int]] | None:
    """Return the bank and the offset of each buffer, as ExecuTorch would choose them; None if it would fail.

    Also return None if the plan exceeds a bank. This is possible if buffers have different alignments, because the
    planner does not count the gaps between objects.
    """
    objects: list[list[SharedObject]] = [[] for _ in problem.banks]
    used = [0] * len(problem.banks)
    homes: dict[int, tuple[int, SharedObject, int]] = {}
    by_size = order(problem.buffers)
    for index in sorted(by_size, key=lambda index: not problem.is_pinned(index)):
        for bank in problem.allowed(index):
            buffer = problem.in_bank(index, bank)
            size = -(-buffer.size // buffer.alignment) * buffer.alignment
            home = find_home(objects[bank], size, buffer.start, buffer.end, buffer.alignment)
            if home is None and used[bank] + size <= problem.banks[bank].size:
                home = SharedObject(size), 0
                objects[bank].append(home[0])
                used[bank] += size
            if home is not None:
                home[0].put(buffer.start, buffer.end, home[1] + size, buffer.alignment)
                homes[index] = bank, *home
                break
        else:
            return None
    _place(objects)
    banks = [problem.allowed(index)[0] for index in range(len(problem.buffers))]
    offsets = [0] * len(problem.buffers)
    for index, (bank, shared, inner) in homes.items():
        banks[index], offsets[index] = bank, shared.offset + inner
        if offsets[index] + problem.buffers[index].size > problem.banks[bank].size:
            return None
    return banks, offsets


def _place(objects: Sequence[Sequence[SharedObject]]) -> None:
    for bank in objects:
        end = 0
        for shared in bank:
            shared.offset = -(-end // shared.alignment) * shared.alignment
            end = shared.offset + shared.size
