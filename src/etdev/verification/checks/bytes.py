"""Check *bytes*: reads the written files back with the strict reader, and looks for missing data."""

from __future__ import annotations

from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.verification.answers import failed, passed
from etdev.verification.check import Check
from etdev.verification.read_back import Contents
from etdev.verification.subject import Subject

_LISTED = 20
"""Maximum number of missing names in a message."""


class BytesCheck(Check):
    """Do the files contain a program that the strict reader accepts, with all data that the program needs?"""

    name = "bytes"

    def run(self, subject: Subject) -> CheckResult:
        """Read the files back, and look for missing data.

        The check also fails if a file has changed since the build.
        """
        contents, origin = subject.contents, subject.origin
        problems, more = contents.problems[:_LISTED], len(contents.problems) - 1
        devices = None if contents.program is None or problems else tuple(map(str, named_devices(contents.program)))
        if origin is not None and origin.alteration is not None:
            return failed(
                self.name,
                (f"the file or its data has changed since the build: {origin.alteration.text}", *problems),
                where=origin.alteration.report,
                hint=f"build it again (`{origin.build_command}`), or restore the file that was built",
                devices=devices,
            )
        if contents.program is not None and not problems:
            return passed(self.name, _summary(contents.program, contents, subject), devices=devices)
        return failed(
            self.name,
            problems,
            summary=f"{problems[0]} (and {more:,} more)" if more else None,
            where=None if origin is None else origin.place(),
            hint=contents.hint if origin is None else f"build it again: `{origin.build_command}`",
        )


def _summary(found: Program, contents: Contents, subject: Subject) -> str:
    instructions = sum(len(plan.instructions) for plan in found.execution_plan)
    constant = sum(not plan.instructions and not plan.inputs for plan in found.execution_plan)
    counts = [_count(len(found.execution_plan) - constant, "method")]
    counts += [_count(constant, "constant method")] if constant else []
    text = f"{', '.join(counts)}, {_count(instructions, 'instruction')} read back"
    if subject.data:
        text += ", with its external data"
    if contents.unknown_lookups:
        text += f"; the names of data that delegates of {', '.join(contents.unknown_lookups)} look up are not known"
    if found.unknown_fields:
        text += f"; fields that this version of etdev does not know: {', '.join(found.unknown_fields)}"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
