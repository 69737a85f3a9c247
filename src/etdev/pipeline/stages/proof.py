"""Proofs of links: a linked program computes what the program before the link computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.errors import LinkError
from etdev.linker import Linked
from etdev.program import Program
from etdev.program.analysis.inplace import Donor
from etdev.validator import Correspondence, ValidationReport, Violation, validate_link


def compare_link(
    before: Program,
    linked: Linked,
    delegate_inputs: Mapping[str, Mapping[int, int]],
    *,
    foreign: bool = False,
    tried: Mapping[str, Sequence[Donor]] | None = None,
) -> ValidationReport:
    """Compare a program with the program linked from it, including methods that keep their plans.

    ``delegate_inputs`` has the number of inputs among the arguments of each delegate call, by method and position
    before the link. ``tried`` has the kernels that may write over an operand, as trials have shown.
    """
    correspondences = {
        report.name: Correspondence(report.renumbered, delegate_inputs.get(report.name, {}))
        for report in linked.methods
    }
    in_place = {name: [(donor.argument, donor.output) for donor in donors] for name, donors in (tried or {}).items()}
    return validate_link(
        before,
        linked.program,
        correspondences,
        shared_state=linked.shared_state,
        foreign=foreign,
        in_place=in_place,
    )


def prove_link(
    before: Program,
    linked: Linked,
    delegate_inputs: Mapping[str, Mapping[int, int]],
    *,
    tried: Mapping[str, Sequence[Donor]] | None = None,
) -> ValidationReport:
    """Compare the programs as :func:`compare_link` does, and require that they compute the same.

    Raises :class:`~etdev.errors.LinkError` for a method that computes something else.
    """
    found = compare_link(before, linked, delegate_inputs, tried=tried)
    for violation in found.violations:
        raise wrong_link(violation)
    return found


def wrong_link(violation: Violation, where: str | None = None) -> LinkError:
    """Return the error for a link whose result computes something else than the program before."""
    return LinkError(
        f"the link is wrong: {violation.message}",
        where=where,
        hint="this is a bug in etdev: please report it with the file; without `elide` and `inplace` it may still link",
    )


def summarize_proof(found: ValidationReport) -> str:
    """Return a short text on what was proved."""
    does = "instruction does what it" if found.instructions == 1 else "instructions do what they"
    values = "value" if found.reads == 1 else "values"
    counts = f"{found.instructions:,} {does} did before the link, {found.reads:,} {values} compared"
    return "; ".join([counts, *(f"not proved for {item.method!r}: {item.reason}" for item in found.not_validated)])
