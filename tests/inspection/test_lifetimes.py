"""From when to when tensors are in use, and how many bytes are in use together."""

from __future__ import annotations

from hypothesis import assume, given

from etdev.errors import LinkError
from etdev.inspection.lifetimes import TensorLife, bytes_in_use, tensor_lives
from etdev.program import Program
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.delegates import delegate_inputs, unsplit_call
from program.hand import loop, tensor
from program.strategies import programs
from support.files import chain, copies, method, program, sin


def memory_of(found: Program) -> MethodMemory:
    (plan,) = found.execution_plan
    return method_memory(plan, delegate_inputs(found, plan))


def test_tensors_of_their_own() -> None:
    """Each is in use from the instruction that writes it to the one that reads it."""
    lives = tensor_lives(memory_of(chain(3)))
    assert [(life.value, life.offset, life.size, life.start, life.end) for life in lives] == [
        (0, 0, 16, 0, 2),
        (1, 16, 16, 1, 3),
        (2, 32, 16, 2, 4),
        (3, 48, 16, 3, 5),
    ]


def test_tensors_in_the_same_bytes() -> None:
    """In place twice: one storage, in which each takes over from the one before."""
    found = program(method([tensor(4, at=0)] * 3, [sin(0, 1), sin(1, 2)]))
    memory = memory_of(found)
    assert len(memory.storages) == 1
    assert tensor_lives(memory) == (
        TensorLife(0, 0, 0, 16, 0, 2),
        TensorLife(1, 0, 0, 16, 1, 3),
        TensorLife(2, 0, 0, 16, 2, 4),
    )


def test_bytes_in_use_change_where_storages_begin_and_end() -> None:
    assert bytes_in_use(memory_of(chain(2)).storages) == ((0, 16), (1, 32), (3, 16), (4, 0))
    assert bytes_in_use(()) == ()
    persistent = [storage for storage in memory_of(copies()).storages if storage.memory_id == 2]
    assert bytes_in_use(persistent) == ((0, 16), (10, 0))


def test_a_loop_keeps_what_it_needs_in_the_next_round() -> None:
    lives = {life.value: (life.start, life.end) for life in tensor_lives(memory_of(loop()))}
    assert lives == {0: (0, 2), 1: (1, 7)}


@given(found=programs())
def test_a_tensor_is_in_use_only_while_its_bytes_are(found: Program) -> None:
    """Law: within its storage, in time and place; and most in use at the peak of what is in use."""
    for plan in found.execution_plan:
        split = delegate_inputs(found, plan)
        assume(unsplit_call(plan, split) is None)
        try:
            memory = method_memory(plan, split)
        except LinkError:
            continue
        lives = tensor_lives(memory)
        assert [life.value for life in lives] == sorted(memory.of)
        for life in lives:
            storage = memory.storages[life.storage]
            assert life.start <= life.end
            assert life.start == life.end or storage.start <= life.start < life.end <= storage.end
            assert storage.offset <= life.offset
            assert life.offset + life.size <= storage.offset + storage.size
        steps = bytes_in_use(memory.storages)
        assert all(live >= 0 for _, live in steps)
        assert not steps or steps[-1][1] == 0
