"""Executors that compute the ops of a delegate in the interpreter, from a program that the compiler recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from etdev.program import Blob, Program
from etdev.program.sidecar.records import DelegateRecord
from etdev.runtime.interpreter.settings import DelegateContext, DelegateExecutor, ExecutorFactory


def digest_of(blob: Blob) -> str:
    """Return the SHA-256 of a blob, which is the key of its record."""
    return hashlib.sha256(bytes(blob)).hexdigest()


def own_ops_executors(program: Program, records: Mapping[str, DelegateRecord]) -> dict[str, ExecutorFactory]:
    """Map each delegate id to an executor factory. Omit an id if one of its blobs has no reference program.

    ``records`` maps the SHA-256 of a blob to a record, which may contain a reference program.
    """
    known: dict[str, bool] = {}
    for plan in program.execution_plan if records else ():
        for delegate in plan.delegates:
            record = records.get(digest_of(program.delegate_data(delegate)))
            known[delegate.id] = known.get(delegate.id, True) and record is not None and bool(record.reference)
    return {name: partial(_load, records) for name, complete in known.items() if complete}


def _load(records: Mapping[str, DelegateRecord], context: DelegateContext) -> DelegateExecutor:
    from etdev.runtime.interpreter.reference import ReferenceExecutor

    return ReferenceExecutor(replace(context, data=Blob(records[digest_of(context.data)].reference)))
