"""Proofs of links: a link must not change the results of a program."""

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
    """Compare a program with its linked program, and return the validator's report, including any violations.

    ``delegate_inputs`` has the number of inputs of each delegate call, by method and by position in ``before``.
    ``tried`` maps an operator to the operands that its kernel may overwrite according to trials. ``foreign`` is True
    for programs that etdev did not emit.
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


def wrong_link(violation: Violation, where: str | None = None) -> LinkError:
    """Return the error for a link that changes the results of a program."""
    return LinkError(
        f"the link is wrong: {violation.message}",
        where=where,
        hint="this is a bug in etdev: please report it and attach the file; try a build without `elide` and `inplace`",
    )


def summarize_proof(found: ValidationReport) -> str:
    """Return a short text on the result of a proof."""
    does = "instruction computes the same as" if found.instructions == 1 else "instructions compute the same as"
    values = "value" if found.reads == 1 else "values"
    counts = f"{found.instructions:,} {does} before the link, {found.reads:,} {values} compared"
    return "; ".join([counts, *(f"not proved for {item.method!r}: {item.reason}" for item in found.not_validated)])
