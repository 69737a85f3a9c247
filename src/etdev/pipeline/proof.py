"""Every link is proved: the linked program computes what the one before the link does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.errors import LinkError
from etdev.linker import Linked
from etdev.program import Program
from etdev.program.inplace import Donor
from etdev.validator import Correspondence, ValidationReport, validate_link


def prove_link(
    before: Program,
    linked: Linked,
    delegate_inputs: Mapping[str, Mapping[int, int]],
    *,
    foreign: bool = False,
    tried: Mapping[str, Sequence[Donor]] | None = None,
) -> ValidationReport:
    """Compare a program with what was linked from it.

    ``delegate_inputs`` has, per method, the position before the link of each delegate call → how many of its arguments
    are inputs. ``tried`` has kernels that may write over an operand as trials have shown. A method that keeps its plan
    is compared, too. Raises :class:`~etdev.errors.LinkError` for a method that does something else.
    """
    correspondences = {
        report.name: Correspondence(report.renumbered, delegate_inputs.get(report.name, {}))
        for report in linked.methods
    }
    in_place = {name: [(donor.argument, donor.output) for donor in donors] for name, donors in (tried or {}).items()}
    found = validate_link(
        before,
        linked.program,
        correspondences,
        shared_state=linked.shared_state,
        foreign=foreign,
        in_place=in_place,
    )
    for violation in found.violations:
        raise LinkError(
            f"the link is wrong: {violation.message}",
            hint="this is a mistake of etdev's: please report it with the file; without `elide` and `inplace` it may "
            "link all the same",
        )
    return found


def summarize_proof(found: ValidationReport) -> str:
    """What was proved, in a few words."""
    counts = f"{found.instructions:,} instructions do what they did before the link, {found.reads:,} values compared"
    return "; ".join([counts, *(f"not proved for {item.method!r}: {item.reason}" for item in found.not_validated)])
