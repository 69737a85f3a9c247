"""A program that is written and read is the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from etdev.program import Blob, Program, parse, read, write
from etdev.program.model import Double, DoubleList
from program import hand
from program.strategies import programs
from support.draws import examples


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_read_gives_what_was_written(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(program, tmp_path_factory.getbasetemp() / "law.pte")


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_read_gives_what_was_written_often(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    _check(program, tmp_path_factory.getbasetemp() / "law_often.pte")


def _check(program: Program, file: Path) -> None:
    write(program, file)
    content = file.read_bytes()
    again = parse(Blob(content))
    assert again == program
    write(program, file)
    assert file.read_bytes() == content
    if not any(map(len, program.constant_buffer + program.backend_delegate_data)):
        write(again, file)
        assert file.read_bytes() == content


@pytest.mark.parametrize("make", [hand.loop, hand.unbounded, hand.everything], ids=lambda make: make.__name__)
def test_programs_by_hand(make: object, tmp_path: Path) -> None:
    program = make()  # type: ignore[operator]
    write(program, tmp_path / "a.pte")
    assert read(tmp_path / "a.pte") == program


def test_floats_are_equal_by_bits() -> None:
    nan = float("nan")
    assert Double(nan) == Double(float("nan"))
    assert hash(Double(nan)) == hash(Double(float("nan")))
    assert Double(0.0) != Double(-0.0)
    assert Double(0.0) != 0.0
    assert DoubleList((nan, 1.0)) == DoubleList((nan, 1.0))
    assert DoubleList((0.0,)) != DoubleList((-0.0,))
    assert len({DoubleList((nan,)), DoubleList((float("nan"),))}) == 1


def test_the_largest_alignment_that_a_file_fits_is_kept(tmp_path: Path) -> None:
    program = dataclasses.replace(hand.everything(), segment_alignment=4096, inline_alignment=64)
    write(program, tmp_path / "a.pte")
    again = read(tmp_path / "a.pte")
    assert again.segment_alignment >= 4096
    assert again.inline_alignment >= 64
    content = (tmp_path / "a.pte").read_bytes()
    assert content.index(b"delegate") % 4096 == 256
    assert content.index(b"inline") % 64 == 0


def test_alignment_is_not_what_a_program_is() -> None:
    program = hand.everything()
    assert dataclasses.replace(program, segment_alignment=4096, inline_alignment=64) == program
