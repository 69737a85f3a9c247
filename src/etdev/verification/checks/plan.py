"""Check *plan*: looks for storages that are in use at the same time and overlap in the memory plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import LinkError, ProgramError
from etdev.pipeline.project.places import object_place
from etdev.pipeline.results.report import find_report, report_beside
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.link.nested import with_nested_of
from etdev.pipeline.stages.link.proof import summarize_proof
from etdev.planner import Buffer, PlanError, Problem, check_plan
from etdev.program import Program, read
from etdev.program.analysis.storage import MethodMemory, Storage, method_memory
from etdev.program.delegates import delegate_inputs
from etdev.program.devices import named_devices
from etdev.program.model import DelegateCall, ExecutionPlan
from etdev.program.sidecar import read_sidecar
from etdev.program.sidecar.notes import noted_inputs
from etdev.units import format_size
from etdev.validator import Correspondence, ValidationReport, guess_correspondences, validate_file, validate_link
from etdev.verification.answers import Finding
from etdev.verification.check import Check, Need
from etdev.verification.subject import Subject

if TYPE_CHECKING:
    from etdev.pipeline.stages.link.linking import LinkedProgram


class PlanCheck(Check):
    """Do storages that are in use at the same time have separate bytes in the written file?"""

    name = "plan"
    needs = (Need.PROGRAM,)

    def run(self, subject: Subject) -> CheckResult:
        """Check the memory plan of the file.

        If the object program is available, also prove that the file computes the same as the object program.
        """
        program, origin = subject.program, subject.origin
        if origin is None:
            return check_alone(program, foreign=True).result(self.name)
        if origin.linked is not None:
            found = check_linked(program, origin.linked)
        else:
            objects = object_place(origin.project, origin.target)
            found = check_existing(program, objects, share_state=origin.project.config.model.share_state)
        hint = (
            "try another planner or alignment (targets.X.memory), for which a new link is enough; also report this "
            "and attach the model"
        )
        return found.result(self.name, where=origin.place("memory"), hint=hint)


def check_memory_plan(
    program: Program, inputs: Mapping[str, Mapping[int, int]] | None = None, *, foreign: bool = False
) -> Finding:
    """Derive the storages and their lifetimes from the program, and look for overlaps.

    ``inputs`` maps each method to the number of inputs of each delegate call. If ``inputs`` is None, the numbers are
    derived from the file. ``foreign`` is True for a program that another tool built.

    Some loaders use the same buffers for all methods, so one method may overwrite the state of another. Such an
    overwrite is only a note for a foreign program, and a failure for any other program.
    """
    problems: list[str] = []
    memories: dict[str, MethodMemory] = {}
    unknown = []
    for plan in program.execution_plan:
        known = delegate_inputs(program, plan) if inputs is None else inputs.get(plan.name, {})
        if _delegate_calls(plan) > len(known):
            unknown.append(plan.name)
            continue
        try:
            memory = method_memory(plan, known)
        except LinkError as error:
            problems.append(f"method {plan.name!r}: {error.message}")
            continue
        memories[plan.name] = memory
        if not foreign:
            # Lifetimes are ranges, so they include branches that do not run. Other tools may rely on the fact that only
            # one of two branches runs.
            problems += _collisions(plan, memory)
    disturbed = list(_disturbed_state(memories))
    if not foreign:
        problems += disturbed
    if problems:
        return Finding.of(problems)
    if unknown:
        names = ", ".join(map(repr, unknown))
        return Finding(
            "not run", f"the file does not state which arguments of the delegate calls of {names} are outputs"
        )
    summary = _summary(memories)
    if disturbed:
        summary += f"; in a loader that gives all methods the same buffers, {disturbed[0]}"
    return Finding("passed", summary)


def check_linked(program: Program, linked: LinkedProgram) -> Finding:
    """Check the memory plan of the file that was just written.

    Also check that the file contains exactly the linked program, because the link's proof applies only to that program.
    """
    check = check_memory_plan(program, linked.delegate_inputs)
    if check.status != "passed":
        return check
    if program != linked.linked.program:
        return Finding.of(["the program read back is not the program that was linked"])
    if not linked.proof.proved:
        return Finding("not run", summarize_proof(linked.proof))
    return Finding("passed", f"{summarize_proof(linked.proof)}; {check.summary}")


def check_existing(program: Program, objects: Path, *, share_state: bool) -> Finding:
    """Check the memory plan of a file that an earlier build wrote, and compare the file with its object program.

    ``objects`` is the path of the object program. If the object program is missing or belongs to another file, check
    only the plan. ``share_state`` is True if state tensors of the same name share memory across methods.
    """
    compared = _compare(program, objects, share_state=share_state)
    if isinstance(compared, str):
        check = check_alone(program)
        if check.status != "passed":
            return check
        return Finding("passed", f"{check.summary}; not compared with {objects.name}: {compared}")
    proof, inputs = compared
    check = check_memory_plan(program, inputs)
    if check.status != "passed":
        return check
    return Finding("passed", f"{summarize_proof(proof)}; {check.summary}")


def check_alone(program: Program, *, foreign: bool = False) -> Finding:
    """Check the memory plan of a file without its object program.

    Also check that no instruction reads a value after its bytes were overwritten. If the program has memory on devices,
    all bytes that instructions read must also be written by instructions. ``foreign`` has the same meaning as in
    :func:`check_memory_plan`.
    """
    inputs = {plan.name: delegate_inputs(program, plan) for plan in program.execution_plan}
    check = check_memory_plan(program, inputs, foreign=foreign)
    if check.status != "passed":
        return check
    found = validate_file(program, inputs)
    wrong = list(found.violations)
    if named_devices(program):  # Only copies and delegate calls fill this memory, so a call is missing.
        wrong += found.never_written
    if wrong:
        return Finding.of([violation.message for violation in wrong])
    notes = [f"method {item.method!r} could not be analyzed: {item.reason}" for item in found.not_validated]
    for doubtful in filter(None, (found.never_written, found.unwritten)):
        more = len(doubtful) - 1
        also = f" (and {more:,} more)" if more else ""
        notes.append(f"{doubtful[0].message}{also}")
    return Finding("passed", "; ".join([check.summary, *notes]))


def _compare(
    program: Program, objects: Path, *, share_state: bool
) -> tuple[ValidationReport, dict[str, dict[int, int]]] | str:
    """Prove that the file computes the same as its object program.

    Return the proof and a table of the inputs of delegate calls. The table maps a method and a call's position in the
    file to the number of inputs. If the proof fails, return the reason.
    """
    try:
        before, sidecar = read(objects), read_sidecar(objects.with_suffix(".json"))
    except ProgramError as error:
        return error.message
    inputs = noted_inputs(sidecar.methods)
    before = with_nested_of(before, program)
    found = guess_correspondences(before, program, inputs) | _reported_correspondences(objects, inputs)
    states = Counter(state.name for notes in sidecar.methods.values() for state in notes.state)
    shared = [name for name, methods in states.items() if methods > 1] if share_state else []
    proof = validate_link(before, program, found, shared_state=shared)
    if not proof.proved:
        reasons = [*(item.message for item in proof.violations), *(item.reason for item in proof.not_validated)]
        return f"it may be from another build ({reasons[0]})"
    placed = {
        name: {item.moved[at]: count for at, count in item.delegate_inputs.items() if at in item.moved}
        for name, item in found.items()
    }
    return proof, placed


def _reported_correspondences(objects: Path, inputs: Mapping[str, Mapping[int, int]]) -> dict[str, Correspondence]:
    """Map each reordered method to the correspondence between its old and new instructions.

    The correspondence comes from the report next to the object program. If that report belongs to another program, the
    proof may fail. But no report makes the proof of an incorrect program succeed.
    """
    report = find_report(report_beside(objects))
    return {
        method.name: Correspondence(method.renumbered, inputs.get(method.name, {}))
        for target in (report.targets if report is not None else ())
        for method in target.methods
        if method.order is not None
    }


def _delegate_calls(plan: ExecutionPlan) -> int:
    return sum(isinstance(call, DelegateCall) for call in plan.instructions)


def _collisions(plan: ExecutionPlan, memory: MethodMemory) -> Iterator[str]:
    buffers: dict[int, list[Storage]] = defaultdict(list)
    for storage in memory.storages:
        buffers[storage.memory_id].append(storage)
    for memory_id, storages in sorted(buffers.items()):
        problem = Problem(
            tuple(Buffer(item.size, item.start, item.end, 1, name=f"value {item.values[0]}") for item in storages)
        )
        try:
            check_plan(problem, [item.offset for item in storages])
        except PlanError as error:
            yield f"method {plan.name!r}, buffer {memory_id}: {error}"


def _disturbed_state(memories: Mapping[str, MethodMemory]) -> Iterator[str]:
    """Yield a sentence for each state that another method would overwrite if all methods used the same buffers."""
    for name, memory in memories.items():
        kept = [storage for storage in memory.storages if storage.persistent]
        for other, others in memories.items():
            for storage in kept if other != name else ():
                if any(_disturbs(found, storage) for found in others.storages):
                    value, buffer = storage.values[0], storage.memory_id
                    yield f"method {other!r} overwrites the state of {name!r} (value {value} in buffer {buffer})"


def _disturbs(found: Storage, state: Storage) -> bool:
    """Return True if ``found``, a storage of another method, overwrites the storage ``state``.

    Methods never share buffer 1 on purpose, so any overlap there overwrites the state. In other buffers, an overlap is
    intended if one storage contains the other.
    """
    end, state_end = found.offset + found.size, state.offset + state.size
    if found.memory_id != state.memory_id or found.offset >= state_end or state.offset >= end:
        return False
    same = (found.offset <= state.offset and state_end <= end) or (state.offset <= found.offset and end <= state_end)
    return found.memory_id == 1 or not same


def _summary(memories: Mapping[str, MethodMemory]) -> str:
    count = sum(len(memory.of) for memory in memories.values())
    total = sum(storage.size for memory in memories.values() for storage in memory.storages)
    if not count:
        return "no tensor in planned memory"
    tensors = f"{count:,} tensor{'s' * (count != 1)}"
    return f"{tensors} of {format_size(total)} in total, none overlaps another one that is in use"
