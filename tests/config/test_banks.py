"""Memory banks in the config (G1): names and ids that occur once, no gaps, and pins to banks that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems

FAST = 'memory.banks = [{ name = "fast", id = 2, size = "8KiB" }, { name = "slow", id = 1, size = "64KiB" }]\n'


def with_banks(*banks: str, rest: str = "") -> str:
    """Return a config whose banks are on lines of their own, from line 7 on."""
    return MINIMAL + "".join(f"[[targets.cpu.memory.banks]]\n{bank}\n" for bank in banks) + rest


def test_banks_in_order(tmp_path: Path) -> None:
    text = MINIMAL + FAST + 'memory.pin = { inputs = "slow", outputs = { 0 = "fast" } }\n'
    memory = load(tmp_path, text).config.targets["cpu"].memory
    assert [(bank.name, bank.id, bank.size) for bank in memory.banks] == [("fast", 2, 8192), ("slow", 1, 65536)]
    assert (memory.pin.inputs, memory.pin.outputs) == ("slow", {"0": "fast"})


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            with_banks('name = "a"\nid = 1\nsize = 1', 'name = "a"\nid = 2\nsize = 1'),
            "12:8",
            "is 'a', the name of another bank",
        ),
        (
            with_banks('name = "a"\nid = 1\nsize = 1', 'name = "b"\nid = 1\nsize = 1'),
            "13:6",
            "is 1, the memory id of another bank",
        ),
        (
            with_banks('name = "a"\nid = 1\nsize = 1', 'name = "b"\nid = 3\nsize = 1'),
            "13:6",
            "is 3, but no bank has the memory id 2",
        ),
        (with_banks('name = "a"\nid = 0\nsize = 1'), "9:6", "expected a whole number from 1 to 64"),
        (
            with_banks('name = "a"\nid = 1\nsize = 1\nalignment = 8'),
            "11:13",
            "is 8, less than `memory.alignment`, which is 16",
        ),
        (with_banks('name = "a"\nid = 1\nsize = 1\ncost = -1'), "11:8", "expected a number from 0 to 1000000"),
        (MINIMAL + FAST + 'memory.pin.inputs = "fats"\n', "8:21", "is 'fats', which is not a bank"),
        (MINIMAL + FAST + 'memory.pin.state = { a = "sram" }\n', "8:26", "is 'sram', which is not a bank"),
        (
            MINIMAL + FAST + 'memory.pin.inputs = { y = "slow" }\n',
            "8:27",
            "`targets.cpu.memory.pin.inputs.y`: no method has such an input",
        ),
        (
            MINIMAL + FAST + 'budget.memory = { fats = "1KiB" }\n',
            "8:26",
            (
                "is a limit of 'fats', which is neither a device (cpu, cuda:0 to cuda:127) nor a bank of this target "
                "('fast', 'slow')"
            ),
        ),
        (
            with_banks('name = "CPU"\nid = 1\nsize = 1'),
            "8:8",
            "is 'CPU', the name of a device",
        ),
        (MINIMAL + 'memory.pin.inputs = "fast"\n', "7:8", "needs memory banks, but there is no `memory.banks`"),
    ],
)
def test_invalid(text: str, place: str, message: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, text)
    assert message.replace("'", '"') in found.message.replace("'", '"')
    assert found.where == f"etdev.toml:{place}"


def test_a_lower_alignment_of_all_tensors_allows_that_of_a_bank(tmp_path: Path) -> None:
    banks = 'memory.banks = [{ name = "a", id = 1, size = 64, alignment = 8 }]\nmemory.alignment = 8\n'
    assert problems(tmp_path, MINIMAL + banks) == ()


def test_the_remedy_for_a_pin_names_the_nearest_bank(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + FAST + 'memory.pin.inputs = "fats"\n')
    assert "fast" in str(found.hint)


def test_a_pin_of_an_input_names_the_inputs(tmp_path: Path) -> None:
    text = MINIMAL.replace('"x"', '"image"') + FAST
    (found,) = problems(tmp_path, text + 'memory.pin.inputs = { img = "slow" }\n')
    assert found.hint == "did you mean `image`?"
    (found,) = problems(tmp_path, text + 'memory.pin.inputs = { y = "slow" }\n')
    assert found.hint == "inputs here: image"


def test_inputs_of_a_saved_program_need_not_be_declared(tmp_path: Path) -> None:
    saved = (
        'version = 1\n[model]\npt2 = "m.pt2"\ntrust = true\n[targets.cpu]\n'
        + FAST
        + 'memory.pin.inputs = { y = "slow" }\n'
    )
    assert problems(tmp_path, saved) == ()


@pytest.mark.parametrize(
    ("banks", "hint"),
    [
        (FAST, "banks here: fast, slow"),
        ("", "add `memory.banks`, or limit the host's memory: `cpu`"),
    ],
)
def test_a_limit_of_an_unknown_bank_has_a_remedy(banks: str, hint: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + banks + 'budget.memory = { weights = "1KiB" }\n')
    assert found.hint == hint


def test_limits_of_banks_and_devices(tmp_path: Path) -> None:
    text = MINIMAL + FAST + 'budget.memory = { fast = "4KiB", CPU = "64KiB", "cuda" = "1KiB" }\n'
    budget = load(tmp_path, text).config.targets["cpu"].budget
    assert budget.memory == {"fast": 4096, "cpu": 65536, "cuda:0": 1024}


def test_a_limit_of_an_unknown_bank_is_no_second_issue_of_wrong_banks(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, MINIMAL + 'memory.banks = 7\nbudget.memory = { sram = "1KiB" }\n')
    assert "memory.banks" in found.message
