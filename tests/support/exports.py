"""Shortcuts in torch's export. They change none of its results, and save a quarter of the time of small models."""

from __future__ import annotations
import __future__

import inspect
import sys
from textwrap import dedent

import pytest


def shorten_exports(patch: pytest.MonkeyPatch) -> None:
    """Patch torch if a test has imported it."""
    if "torch._export.utils" in sys.modules:
        _query_dispatcher_once(patch)
        _leave_out_absent_backends(patch)
        _postpone_annotations(patch)


def _query_dispatcher_once(patch: pytest.MonkeyPatch) -> None:
    """Look for new operators once for each table of decompositions, instead of once for each namespace."""
    import torch._export.utils as utils
    from torch.export import decomp_utils, exported_program

    collect, materialize = utils._collect_all_valid_cia_ops, utils._materialize_cpp_cia_ops

    def collect_once() -> object:
        materialize()
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(utils, "_materialize_cpp_cia_ops", lambda: None)
            return collect()

    for module in (utils, decomp_utils, exported_program):
        patch.setattr(module, "_collect_all_valid_cia_ops", collect_once)


def _leave_out_absent_backends(patch: pytest.MonkeyPatch) -> None:
    """Replace the composite operators' kernels, while a program is decomposed, for the backends that tests have."""
    from torch.export import exported_program

    for name in ("_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", "_BACKEND_KEYS_TO_OVERRIDE"):
        keys = getattr(exported_program, name)
        patch.setattr(exported_program, name, [key for key in keys if key.name.endswith(("CPU", "Meta"))])


def _postpone_annotations(patch: pytest.MonkeyPatch) -> None:
    """Compile the method that registers kernels without its annotations, which take most of its time."""
    import torch._ops as ops

    source = dedent(inspect.getsource(ops.OperatorBase.py_impl))
    code = compile(source, ops.__file__, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    names: dict[str, object] = {}
    exec(code, vars(ops), names)
    patch.setattr(ops.OperatorBase, "py_impl", names["py_impl"])
