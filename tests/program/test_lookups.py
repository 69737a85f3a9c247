"""Data that a program needs: of its tensors, and of delegates whose blobs name them (14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.data_files.lookups import delegate_lookups, missing_data
from program.test_external import constant, external, program
from support.blobs import xnnpack

AOTI = ("aa_so_blob", "bb_weights_blob")


def delegated(backend: str, blob: bytes, *names: str) -> Program:
    """Build a program with one delegate, and the data that it looks up under these names."""
    before = program(named=tuple(m.NamedData(name, 2) for name in names))
    segments = (before.segments[0], replace(before.segments[1], data=Blob(blob)), m.Segment(1 << 20, Blob(b"data")))
    (plan,) = before.execution_plan
    plan = replace(plan, delegates=(replace(plan.delegates[0], id=backend),))
    return replace(before, execution_plan=(plan,), segments=segments)


def lookups(found: Program) -> tuple[str, ...] | None:
    (plan,) = found.execution_plan
    return delegate_lookups(found, plan.delegates[0])


@pytest.mark.parametrize(
    ("backend", "blob", "names"),
    [
        ("XnnpackBackend", xnnpack("", "a", "größe", "a"), ("a", "größe")),
        ("XnnpackBackend", xnnpack(), ()),
        ("XnnpackBackend", b"XN01", None),
        ("XnnpackBackend", b"\0\0\0\0XH00".ljust(60, b"\xff"), None),
        ("CudaBackend", "\n".join(AOTI).encode(), AOTI),
        ("MetalBackend", "\n".join(AOTI).encode(), AOTI),
        ("CudaBackend", b"", None),
        ("CudaBackend", b"aa_so_blob", None),
        ("CudaBackend", b"\xff_so_blob\n_weights_blob", None),
        ("CudaBackend", "\n".join(AOTI).encode() + bytes(1 << 17), None),
        ("AnotherBackend", "\n".join(AOTI).encode(), None),
        ("EtdevReferenceBackend", b"", ()),
    ],
)
def test_what_a_blob_tells(backend: str, blob: bytes, names: tuple[str, ...] | None) -> None:
    assert lookups(delegated(backend, blob)) == names


@given(st.data())
def test_no_blob_of_xnnpack_breaks_the_reader(data: st.DataObject) -> None:
    blob = bytearray(xnnpack("", "a", "b"))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    found = lookups(delegated("XnnpackBackend", bytes(blob[: data.draw(st.integers(0, len(blob)))])))
    assert found is None or all(found)


def test_what_is_missing() -> None:
    found = delegated("CudaBackend", "\n".join(AOTI).encode(), AOTI[0])
    (missing,) = missing_data(found)
    assert str(missing) == f"{AOTI[1]!r}, which the delegate CudaBackend of method 'forward' needs, is in no file"
    assert list(missing_data(found, {AOTI[1]})) == []


def test_names_that_only_emission_knows() -> None:
    found = delegated("AnotherBackend", b"", "a")
    (missing,) = missing_data(found, (), {"forward": ["a", "b"]})
    assert str(missing) == "'b', which a delegate of method 'forward' needs, is in no file"


def test_tensors_in_another_file() -> None:
    found = program(replace(constant(0), extra_tensor_info=external("w")), constant(1, "inside"))
    (missing,) = missing_data(found)
    assert str(missing) == "'w', which value 0 of method 'forward' needs, is in no file"
    assert list(missing_data(found, {"w"})) == []


def test_a_name_is_told_once() -> None:
    both = [replace(constant(0), extra_tensor_info=external("w"))] * 2
    assert len(list(missing_data(program(*both)))) == 1
