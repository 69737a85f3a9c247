"""The selected-operators YAML: what ExecuTorch's gen_oplist writes of the same file, and what etdev reads back. E2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from etdev.pipeline.project import runtime_contents
from etdev.pipeline.stages.selected_operators import operators_yaml, selected_operators
from etdev.program import Program, read, write
from etdev.program import model as m
from program import hand
from program.hand import tensor
from support.files import method, program
from support.projects import LINEAR, LINEAR_CONFIG, make_project


def lists() -> Program:
    """Calls with lists of tensors: of several dtypes, of none, with absent ones, and of none at all."""
    values = [
        tensor(4, at=0),
        replace(tensor(4, at=16), scalar_type=m.ScalarType.INT),
        m.TensorList((0, 1)),
        m.TensorList(()),
        m.OptionalTensorList((-1, 1)),
        m.OptionalTensorList((-1,)),
        m.Null(),
        m.Int(1),
    ]
    names = ["cat", "empty", "index", "absent", "nothing"]
    operators = tuple(m.Operator(f"my::{name}", "out") for name in names)
    calls = [m.KernelCall(number, (2 + number, 7, 0)) for number in range(5)]
    return program(method(values, calls, inputs=(0,), outputs=(0,), operators=operators))


def _theirs(file: Path) -> dict[str, Any]:
    pytest.importorskip("executorch.codegen.tools.gen_oplist", reason="it writes what is compared with")
    from executorch.codegen.tools.gen_oplist import gen_oplist

    gen_oplist(file.with_suffix(".yaml"), model_file_path=str(file))
    found: dict[str, Any] = _loaded(file.with_suffix(".yaml").read_text())
    return found


def _loaded(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def _unordered(found: dict[str, Any]) -> dict[str, Any]:
    """Keys of a kernel come out of a set, the file's name is a path there."""
    metadata = {name: sorted(keys) for name, keys in found["et_kernel_metadata"].items()}
    operators = {name: {**item, "debug_info": None} for name, item in found["operators"].items()}
    return {**found, "et_kernel_metadata": metadata, "operators": operators}


@pytest.mark.parametrize("make", [hand.loop, hand.everything, lists], ids=lambda make: make.__name__)
def test_programs_by_hand(make: Callable[[], Program], tmp_path: Path) -> None:
    write(make(), tmp_path / "a.pte")
    assert _unordered(_loaded(operators_yaml(make(), "a.pte"))) == _unordered(_theirs(tmp_path / "a.pte"))


@pytest.mark.parametrize("name", ["branches", "xnnpack"])
@pytest.mark.sampled(1)
def test_real_files(name: str, tmp_path: Path) -> None:
    """What a delegate does inside is not asked of the kernels."""
    pytest.importorskip("executorch.codegen.tools.gen_oplist", reason="it writes what is compared with")
    from program import real

    file = getattr(real, name)(tmp_path).pte
    found = selected_operators(read(file), file.name)
    assert _unordered(found) == _unordered(_theirs(file))
    assert all(item["debug_info"] == [file.name] for item in found["operators"].values())


def test_it_is_what_runtime_operators_takes(tmp_path: Path) -> None:
    (tmp_path / "ops.yaml").write_text(operators_yaml(lists(), "a.pte"))
    config = LINEAR_CONFIG + '[targets.cpu]\nruntime.operators = "ops.yaml"\n'
    project = make_project(tmp_path, config, model=LINEAR)
    assert runtime_contents.selected_operators(project, "cpu") == {
        f"my::{n}.out" for n in ("cat", "empty", "index", "absent", "nothing")
    }


def test_equal_programs_give_equal_texts() -> None:
    assert operators_yaml(hand.loop(), "a.pte") == operators_yaml(hand.loop(), "a.pte")
    assert operators_yaml(hand.loop(), "a.pte").startswith("build_features: []\n")
