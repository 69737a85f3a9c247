"""The programs that the checks are tried on, each built once."""

from __future__ import annotations

import pytest

from support.projects import LINEAR, LINEAR_CONFIG
from support.verification import Prepared, prepare

_TARGETS = """
    samples = "data:samples"
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = "data:samples"
    [targets.cpu]
    lowering = "stock"
    [targets.int8]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
"""

_DATA = """
    import os
    import torch

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(2, 32, generator=generator),) for _ in range(3)]

    def wrong_shape():
        yield (torch.randn(2, 32),)
        yield (torch.randn(2, 31),)

    def nothing():
        return []

    def raising():
        raise OSError("the data set is gone")

    def right(run):
        assert all(len(outputs) == 1 for outputs in run.map(samples()))
        return 0.5

    runs = []

    def better_in_float(run):
        # The float model is called second.
        outputs = [output for sample in samples() for output in run(*sample)]
        runs.append(torch.cat(outputs))
        if len(runs) % 2 == 0:
            torch.testing.assert_close(runs[-1], runs[-2])
        return (len(runs) + 1) % 2

    def tensor(run):
        return torch.tensor(0.5)

    def many(run):
        return torch.ones(3)

    def text(run):
        return "0.5"

    def truth(run):
        return True

    def nan(run):
        return float("nan")

    def infinite(run):
        return float("inf")

    def broken(run):
        return {}["missing"]

    def wrong_input(run):
        return run(torch.randn(2, 31))

    def no_method(run):
        return run.method("backward")
"""

_FAILING = LINEAR.replace("import torch\n", "import os, torch\n", 1).replace(
    "return self", "assert not os.environ.get('FAIL'), 'told to'\n            return self"
)


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """One linear layer on portable kernels. Its eager model fails where ``FAIL`` is set in the environment."""
    return prepare(tmp_path_factory.mktemp("linear"), "cpu", LINEAR_CONFIG + _TARGETS, model=_FAILING, data=_DATA)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same with other weights."""
    model = _FAILING.replace("manual_seed(1)", "manual_seed(2)")
    return prepare(tmp_path_factory.mktemp("other"), "cpu", LINEAR_CONFIG + _TARGETS, model=model, data=_DATA)


@pytest.fixture(scope="session")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same as ``linear``, as int8 in XNNPACK."""
    return prepare(tmp_path_factory.mktemp("quantized"), "int8", LINEAR_CONFIG + _TARGETS, model=_FAILING, data=_DATA)
