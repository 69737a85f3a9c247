"""Kernels that may write over an input: etdev's table against measurements (C2, C3)."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev import compat
from etdev.program.analysis.inplace import DEFAULT, nearest_operators, parse_operator

MEASURED = Path(__file__).parents[1] / "data"
"""Folder of the outputs of ``benchmarks/inplace_table.py``, with the kernels of each tested version of ExecuTorch."""

LEFT_OUT = {
    "a copy of the input, if the linker's other conditions hold; it goes altogether": {
        "aten::_to_copy.out: self->out",
        "aten::copy.out: self->out",
        "aten::copy.out: src->out",
    },
    "a contraction: this one adds its product to what is there, another library may begin by clearing the output": {
        "aten::addmm.out: self->out",
    },
    "a gather: this one reads an index at a time, another may read ahead": {
        "aten::gather.out: index->out",
        "aten::index_select.out: index->out",
    },
    "a parameter, which has the output's shape only if there is one row": {
        "aten::native_layer_norm.out: weight->out0",
        "aten::native_layer_norm.out: bias->out0",
        "quantized_decomposed::dequantize_per_channel.out: scales->out",
    },
    "a mask or index next to the result, over an input of another meaning": {
        "aten::native_dropout.out: input->out1",
        "aten::topk.values: self->indices",
    },
    "a selection: this one sorts a copy, another may select in place": {
        "aten::topk.values: self->values",
    },
    "input and output are of different types, which the linker does not lay over each other": {
        "quantized_decomposed::dequantize_per_channel.out: input->out",
        "quantized_decomposed::dequantize_per_tensor.Tensor_out: input->out",
        "quantized_decomposed::dequantize_per_tensor.out: input->out",
        "quantized_decomposed::dequantize_per_token.out: input->out",
        "quantized_decomposed::quantize_per_channel.out: input->out",
        "quantized_decomposed::quantize_per_tensor.Tensor_out: input->out",
        "quantized_decomposed::quantize_per_tensor.out: input->out",
        "quantized_decomposed::quantize_per_token.out: input->out",
    },
}
"""Reason → entries that are safe by the measurement, but not in the table."""


def verdicts(lines: Iterable[str]) -> dict[str, str]:
    """Return ``aten::add.out: self->out`` → verdict."""
    return {f"{row['op']}: {row['position']}": row["verdict"] for row in csv.DictReader(lines)}


def measured(version: str = compat.TESTED[0]) -> dict[str, str]:
    """Return the verdicts of the measurement in the repository."""
    return verdicts((MEASURED / f"inplace_table-{version}.csv").read_text().splitlines())


def named(table: Iterable[str] = DEFAULT) -> Iterator[str]:
    """Yield the entries of etdev's table under the names of the measurement."""
    pytest.importorskip("executorch.kernels.quantized", reason="needs the extra `build`")
    from etdev.kernel_trials.op_schema import operator_schema

    for operator in table:
        schema = operator_schema(operator)
        assert schema is not None, operator
        for donor in DEFAULT[operator]:
            output = schema.outputs[donor.output].name
            yield f"{operator}: {schema.arguments[donor.argument].name}->{output}"


@pytest.mark.parametrize("version", compat.TESTED)
def test_the_table_is_what_was_measured(version: str) -> None:
    """C2: every safe operator and position except those that are left out for a reason, and no other."""
    safe = {place for place, verdict in measured(version).items() if verdict == "safe"}
    left_out = set().union(*LEFT_OUT.values())
    assert left_out <= safe
    assert set(named()) == safe - left_out


def test_one_table_is_enough_for_all_tested_versions() -> None:
    assert [measured(version) for version in compat.TESTED[1:]] == [measured()] * len(compat.TESTED[1:])


def test_nothing_that_moves_or_sums_up_is_in_the_table() -> None:
    """They look right on small or square shapes only."""
    found = measured()
    for operator in (
        "mm",
        "bmm",
        "linear",
        "convolution",
        "flip",
        "permute_copy",
        "roll",
        "gather",
        "embedding",
        "tril",
    ):
        assert parse_operator(operator) == ()
        places = [place for place in found if place.startswith(f"aten::{operator}.") and "index" not in place]
        assert "unsafe" in {found[place] for place in places}, operator


AGREE = {
    "safe": {"safe", "identity"},
    "unsafe": {"unsafe"},
    "refused": {"refused"},
    "conditional": {"few", "identity", "unsafe"},
}
"""Verdicts of the earlier measurement → those of this one that agree."""

DIFFERENT = {
    "an operator without an output of its own, which nothing can be laid over": {
        "aten::copy_: self (in-place op)",
        "aten::index_put_: self (in-place op)",
    },
    "lists of tensors are not tried: no position of the table could name one": {
        "aten::cat.out: tensors[0]->out",
        "aten::split_copy.Tensor_out: self->out[0]",
        "aten::split_with_sizes_copy.out: self->out[0]",
        "aten::stack.out: tensors[0]->out",
        "aten::unbind_copy.int_out: self->out[0]",
    },
    "of equal size, but never of one shape": {
        "aten::_native_batch_norm_legit_no_training.out: bias->out0",
        "aten::_native_batch_norm_legit_no_training.out: running_mean->out0",
        "aten::_native_batch_norm_legit_no_training.out: running_var->out0",
        "aten::_native_batch_norm_legit_no_training.out: weight->out0",
        "aten::diagonal_copy.out: self->out",
        "aten::native_group_norm.out: bias->out0",
        "aten::native_group_norm.out: weight->out0",
        "aten::pixel_shuffle.out: self->out",
        "aten::pixel_unshuffle.out: self->out",
        "aten::select_copy.int_out: self->out",
        "aten::select_scatter.out: src->out",
        "aten::unfold_copy.out: self->out",
        "aten::unsqueeze_copy.out: self->out",
    },
    "of one shape only where there is one row; safe there, and left out all the same": {
        "aten::native_layer_norm.out: bias->out0",
        "aten::native_layer_norm.out: weight->out0",
    },
    "the condition is one that the kernel asks for itself, or that the linker does": {
        "aten::_native_batch_norm_legit.out: input->out",
        "aten::isinf.out: self->out",
    },
    "safe here on more shapes, and left out all the same": {"aten::topk.values: self->values"},
    "one element, which is too few to tell": {"aten::fill.Tensor_out: value->out"},
    "PyTorch knows no schema for it; the linker removes it instead": {
        "dim_order_ops::_clone_dim_order.out: self->out",
        "dim_order_ops::_to_dim_order_copy.out: self->out",
    },
}
"""Reason → entries in which the two measurements differ."""


def test_an_earlier_measurement_agrees(shared: Path) -> None:
    """C2: on every operator and position that it ran, except those that differ for a reason."""
    path = shared / "data/inplace/table.csv"
    if not path.is_file():
        pytest.skip(f"there is no file {path}")
    before = {place: verdict for place, verdict in verdicts(path.read_text().splitlines()).items() if verdict in AGREE}
    found = measured()
    differ = {place for place, verdict in before.items() if found.get(place) not in AGREE[verdict]}
    assert differ == set().union(*DIFFERENT.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_measurement_can_be_repeated(repository: Path) -> None:
    """C2: on the kernels that are installed now."""
    command = [sys.executable, str(repository / "benchmarks/inplace_table.py")]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert verdicts(io.StringIO(ended.stdout)) == measured()


SPELLINGS = {
    "relu": ("aten::relu.out",),
    "aten.relu": ("aten::relu.out",),
    "aten::relu": ("aten::relu.out",),
    "aten.relu.default": ("aten::relu.out",),
    "torch.ops.aten.relu.default": ("aten::relu.out",),
    "aten::relu.out": ("aten::relu.out",),
    "add": ("aten::add.Scalar_out", "aten::add.out"),
    "aten.add.Tensor": ("aten::add.out",),
    "add.Scalar": ("aten::add.Scalar_out",),
    "eq.Tensor": ("aten::eq.Tensor_out",),
    "aten.where.self": ("aten::where.self_out",),
    "aten.div.Tensor_mode": ("aten::div.out_mode",),
    "_softmax": ("aten::_softmax.out",),
    "quantized_decomposed.add.default": ("quantized_decomposed::add.out",),
    "relux": (),
    "my::op.out": (),
    "aten::mm.out": (),
    "my::relu.out": (),
    "aten::relu.nothing": (),
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_spellings(text: str) -> None:
    """C2: spellings that a config may use."""
    assert parse_operator(text) == SPELLINGS[text]


@pytest.mark.parametrize("text", ["", "aten::", "::relu", "relu.", "a.b.c.d", "re lu", "aten::a::b", "relu-out"])
def test_texts_that_name_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an operator"):
        parse_operator(text)


@given(st.sampled_from(sorted(DEFAULT)), st.sampled_from(["{}", "torch.ops.{}"]))
def test_every_operator_has_its_name(operator: str, form: str) -> None:
    """In either spelling, with dots or with colons."""
    assert parse_operator(operator) == (operator,)
    assert parse_operator(form.format(operator.replace("::", "."))) == (operator,)
    assert operator in parse_operator(operator.partition(".")[0])


@given(st.sampled_from(sorted(DEFAULT)), st.text("abcdefghijklmnop_", min_size=1, max_size=1), st.integers(0, 40))
def test_a_misspelling_has_the_operator_among_its_nearest(operator: str, letter: str, place: int) -> None:
    name = operator.partition("::")[2].partition(".")[0]
    place %= len(name) + 1
    misspelled = f"{name[:place]}{letter}{name[place:]}"
    known = [operator, "aten::convolution.out", "aten::embedding.out"]
    assert operator in nearest_operators(misspelled, known)
    assert nearest_operators(f"aten::{misspelled}.nothing", known)[0] == operator
