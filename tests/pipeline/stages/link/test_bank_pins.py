"""Pins of a config, as the linker gets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.errors import ConfigError
from etdev.linker.pins import Pins
from etdev.pipeline.stages.emit import ObjectProgram
from etdev.pipeline.stages.link.bank_pins import target_banks
from etdev.program.sidecar import MethodNotes, Sidecar, StateNote
from support.files import method, program, tensor
from support.projects import LINEAR_CONFIG, make_project

BANKS = """
    [targets.cpu.memory]
    banks = [{ name = "fast", id = 1, size = 64 }, { name = "slow", id = 2, size = 64 }]
    pin.state = """


def pins(folder: Path, pin: str, *state: StateNote) -> Pins:
    project = make_project(folder, f"{LINEAR_CONFIG}{BANKS}{pin}\n")
    found = program(method([tensor(8, at=0)], [], sizes=(32,)))
    objects = ObjectProgram(found, Sidecar({"forward": MethodNotes(state=state)}), folder / "x.object.pte")
    banks = target_banks(project, "cpu", objects, {})
    assert banks is not None
    return banks.pins


def test_a_pin_of_all_state(tmp_path: Path) -> None:
    assert pins(tmp_path, '"slow"', StateNote(0, "seen", initialized=False)).state == {"": "slow"}


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ('"slow"', "`targets.cpu.memory.pin.state`: no method of the program has state"),
        ('{ seen = "slow" }', "`targets.cpu.memory.pin.state.seen`: no method of the program has the state 'seen'"),
    ],
)
def test_a_pin_of_state_in_a_program_without_state(pin: str, message: str, tmp_path: Path) -> None:
    """A reproducer: the pin of all state was accepted, the pin of one name was an error."""
    with pytest.raises(ConfigError) as caught:
        pins(tmp_path, pin)
    assert message in str(caught.value)
