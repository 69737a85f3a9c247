"""Link of a method with all checks on the result, for tests that are written by hand."""

from __future__ import annotations

from collections.abc import Mapping

from etdev.decisions import ElisionKind
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.check import check_structure
from linker.oracle import Call, Machine, Trace
from linker.programs import Method, Object, program


def linked(method: Method, **options: object) -> Linked:
    """Link a method. Check that the result is complete and computes the same, also after a link without notes."""
    found = program(method)
    done = link(found.program, LinkOptions(**options), found.sidecar)  # type: ignore[arg-type]
    wanted = meaning(found.program, found, placed=False)
    for whole in (done.program, link_foreign(done.program).program):
        check_structure(whole)
        assert meaning(whole, found) == wanted
    return done


def meaning(whole: m.Program, found: Object, *, placed: bool = True) -> list[Trace]:
    """Return the traces of some calls, made in order."""
    calls = [Call(seed=seed, decisions=(seed % 2 == 0,)) for seed in range(4)]
    return Machine(whole, placed=placed, inputs=found.inputs).run(*calls)


def size(done: Linked) -> int:
    """Return the bytes of planned memory."""
    return sum(done.program.execution_plan[0].non_const_buffer_sizes)


def operators(done: Linked) -> list[str]:
    """Return the remaining operators in order."""
    plan = done.program.execution_plan[0]
    return [
        operator_name(plan.operators[call.op_index]).partition("::")[2]
        for chain in plan.chains
        for call in chain.instructions
        if isinstance(call, m.KernelCall)
    ]


def decided(done: Linked, kind: ElisionKind) -> Mapping[int, tuple[str, str]]:
    """Return position → decision about a copy of that kind, and the reason."""
    return {found.instruction: (found.action, found.reason) for found in done.methods[0].elisions if found.kind == kind}
