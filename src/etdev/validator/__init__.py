"""Translation validation: proves that a linked program computes what the program before the link does.

Shares no code with what links, plans or follows lifetimes; it knows the dataclasses of a program and has its own table
of operators.
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
