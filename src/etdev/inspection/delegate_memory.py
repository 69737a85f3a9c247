"""Memory that delegates need according to their compilers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from etdev.pipeline.results.result_parts import DelegateMemory
from etdev.program import Program
from etdev.program.sidecar.records import DelegateRecord


def delegate_memory(program: Program, records: Mapping[str, DelegateRecord]) -> dict[str, tuple[DelegateMemory, ...]]:
    """Map the name of each method to the memory that its delegates need.

    The keys of ``records`` are the SHA-256 of blobs. Delegates without a record are left out.
    """
    found: dict[str, tuple[DelegateMemory, ...]] = {plan.name: () for plan in program.execution_plan}
    for plan in program.execution_plan if records else ():
        digests = [hashlib.sha256(bytes(program.delegate_data(delegate))).hexdigest() for delegate in plan.delegates]
        found[plan.name] = tuple(
            DelegateMemory(index, delegate.id, dict(records[digest].memory))
            for index, (delegate, digest) in enumerate(zip(plan.delegates, digests, strict=True))
            if digest in records
        )
    return found
