"""Translation validation: a proof that a linked program computes the same as the program before the link.

The validator shares no code with the linker, the planner or the lifetime analysis. It uses only the dataclasses of
programs, and has its own table of operators.
"""

from etdev.validator.align import guess_correspondences
from etdev.validator.report import NotValidated, ValidationReport, Violation
from etdev.validator.single import validate_file
from etdev.validator.validate import Correspondence, validate_link

__all__ = [
    "Correspondence",
    "NotValidated",
    "ValidationReport",
    "Violation",
    "guess_correspondences",
    "validate_file",
    "validate_link",
]
