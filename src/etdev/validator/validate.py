"""Validation of all methods of a linked program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from etdev.program import model as m
from etdev.validator.across import check_across
from etdev.validator.constants import Constants
from etdev.validator.domain.symbols import Symbols
from etdev.validator.facts import Facts
from etdev.validator.method import MethodValidation
from etdev.validator.report import NotValidated, ValidationReport, Violation
from etdev.validator.run import InPlace


@dataclass(frozen=True, slots=True)
class Correspondence:
    """Corresponding instructions before and after a link. A wrong pair can cause violations, but no wrong proof."""

    moved: Mapping[int, int]
    """Maps the position of each kept instruction before the link to its position after the link.

    Positions count the instructions of all chains of the method together.
    """
    delegate_inputs: Mapping[int, int] = field(default_factory=dict)
    """Maps the position of each delegate call before the link to the call's number of inputs."""


def validate_link(
    before: m.Program,
    after: m.Program,
    correspondences: Mapping[str, Correspondence],
    *,
    shared_state: Collection[str] = (),
    foreign: bool = False,
    in_place: InPlace | None = None,
) -> ValidationReport:
    """Prove that each method of ``after`` computes the same as the method with the same name in ``before``.

    ``before`` runs with its own memory plan. ``shared_state`` contains the names of state that must have the same
    address in all methods of ``after``. In a ``foreign`` program, methods share buffers 2 and above.
    ``in_place`` contains further operands that kernels may overwrite, as ``(argument, output)`` pairs by operator.
    Methods without a correspondence are not validated.
    """
    symbols = Symbols()
    constants = Constants(symbols, before, after)
    violations: list[Violation] = []
    skipped: list[NotValidated] = []
    methods: list[MethodValidation] = []
    names = [[plan.name for plan in program.execution_plan] for program in (before, after)]
    if names[0] != names[1]:
        message = f"the program has the methods {', '.join(names[1])} instead of {', '.join(names[0])}"
        return ValidationReport((Violation("control flow", names[1][0] if names[1] else "", message),), (), 0, 0)
    violations += _named_data(before, after)
    for one, other in zip(before.execution_plan, after.execution_plan, strict=True):
        link = correspondences.get(one.name)
        if link is None:
            skipped.append(NotValidated(one.name, "the correspondence of its instructions is unknown"))
            continue
        method = _prepare_method(symbols, constants, (before, after), (one, other), link, in_place or {})
        methods.append(method)
        outcome = method.run()
        violations += outcome.violations
        if outcome.not_followed is not None and not outcome.violations:
            skipped.append(NotValidated(one.name, outcome.not_followed))
    if not violations and not skipped:
        violations += check_across(methods, shared_state, foreign=foreign)
    return ValidationReport(
        tuple(violations),
        tuple(skipped),
        sum(len(chain.instructions) for method in methods for chain in method.plans[1].chains),
        sum(method.outcome.reads for method in methods),
    )


def _named_data(before: m.Program, after: m.Program) -> Iterator[Violation]:
    """Yield a violation for each piece of a delegate's named data that is missing or changed after the link."""
    found = {item.key: after.segments[item.segment_index].data for item in after.named_data}
    for item in before.named_data:
        data = before.segments[item.segment_index].data
        other = found.get(item.key)
        if other is None or (other is not data and other != data):
            what = "is missing" if other is None else "differs from the data before the link"
            yield Violation("content", "", f"the data {item.key!r}, which delegates look up by name, {what}")


def _prepare_method(
    symbols: Symbols,
    constants: Constants,
    programs: tuple[m.Program, m.Program],
    plans: tuple[m.ExecutionPlan, m.ExecutionPlan],
    link: Correspondence,
    in_place: InPlace,
) -> MethodValidation:
    inputs = (
        link.delegate_inputs,
        {link.moved[position]: count for position, count in link.delegate_inputs.items() if position in link.moved},
    )
    facts = []
    for side, (program, plan) in enumerate(zip(programs, plans, strict=True)):
        known = {
            index: found
            for index, tensor in plan.tensors()
            if tensor.is_constant and (found := constants.of(side, tensor)) is not None
        }
        facts.append(Facts(side, program, plan, inputs[side], known))
    return MethodValidation(symbols, constants, (facts[0], facts[1]), link.moved, in_place)
