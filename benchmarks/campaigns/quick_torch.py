"""Less work for torch in a process that decomposes thousands of programs; its results stay the same.

Nothing here may hold for a process that adds operators or installs packages.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from typing import Any, NamedTuple

import torch
from torch._dynamo import guards
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.variables import nn_module, user_defined
from torch._export import utils
from torch._higher_order_ops import utils as control_flow
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program
from torch.fx import GraphModule, _symbolic_trace
from torch.fx.graph import _PyTreeCodeGen


def quicken() -> None:
    """Change torch, the garbage collector and ``importlib.metadata`` in this process.

    Each decomposition looks up all operators of torch once per namespace, and gives thousands of them other kernels for
    its time. Each build of etdev asks for the files and entry points of all packages. Torch compiles control flow for
    each of its eager calls, and makes Python code of each graph, although most graphs are never called. Each trace sets
    two methods of ``Module``, for which Python visits all of its subclasses.
    """
    gc.set_threshold(50_000, 20, 50)
    for name in ("_materialize_cpp_cia_ops", "_check_valid_to_preserve"):
        setattr(utils, name, functools.cache(getattr(utils, name)))
    original = exported_program._override_composite_implicit_decomp
    exported_program._override_composite_implicit_decomp = _Overrides(original).block
    metadata.PathDistribution.read_text = _remembered(metadata.PathDistribution.read_text)  # type: ignore[method-assign]
    control_flow._hop_compile_and_call = _direct(control_flow._hop_compile_and_call)
    torch._dynamo.config.run_gc_after_compile = False
    guards.profile_guard_manager = lambda *_: 0.0  # It flushes the caches of the processor to measure.
    _compile_graphs_when_called()
    _trace_without_new_methods()


def _direct(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs control flow as it is, and compiles it only during an export."""

    def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        if torch.compiler.is_exporting():
            return compiled(function, args, kwargs)
        return function(*args, **(kwargs or {}))

    return call


def _compile_graphs_when_called() -> None:
    """Generate the Python code of a graph for its first call, as torch's own lazy graphs do."""
    recompile = GraphModule.recompile

    def forward(graph: GraphModule, *args: Any, **kwargs: Any) -> Any:
        recompile(graph)
        return type(graph).forward(graph, *args, **kwargs)

    def compile_later(graph: GraphModule) -> Any:
        if isinstance(graph._graph._codegen, _PyTreeCodeGen):
            return recompile(graph)  # Torch reads the signature of such a graph.
        type(graph).forward = forward
        graph.__dict__.pop("_code", None)
        graph._recompile_submodules()
        return _LaterCode(lambda: recompile(graph))

    GraphModule.recompile = compile_later  # type: ignore[method-assign]
    GraphModule._code = _LaterText(recompile)  # type: ignore[attr-defined]


def _trace_without_new_methods() -> None:
    """Let the methods of ``Module`` that each trace replaces look up the replacement."""
    held: dict[str, list[Callable[..., Any]]] = {}
    for name, captured in {
        "__getattr__": ("unpatched_nn_module_getattr", dynamo_utils, user_defined),
        "__call__": ("unpatched_nn_module_call", dynamo_utils, nn_module),
    }.items():
        stack = held[name] = [getattr(torch.nn.Module, name)]
        method = _newest(stack)
        setattr(torch.nn.Module, name, method)
        for owner in captured[1:]:
            setattr(owner, captured[0], method)

    patch, revert = _symbolic_trace._PatchedFnSetAttr.patch, _symbolic_trace._PatchedFnSetAttr.revert

    def patch_quickly(patched: _symbolic_trace._PatchedFnSetAttr) -> None:
        if patched.frame_dict is torch.nn.Module and patched.fn_name in held:
            held[patched.fn_name].append(patched.new_fn)
        else:
            patch(patched)

    def revert_quickly(patched: _symbolic_trace._PatchedFnSetAttr) -> None:
        if patched.frame_dict is torch.nn.Module and patched.fn_name in held:
            held[patched.fn_name].remove(patched.new_fn)
        else:
            revert(patched)

    _symbolic_trace._PatchedFnSetAttr.patch = patch_quickly  # type: ignore[method-assign]
    _symbolic_trace._PatchedFnSetAttr.revert = revert_quickly  # type: ignore[method-assign]


def _newest(stack: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a method that calls the last function of a stack."""

    @functools.wraps(stack[0])
    def method(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return stack[-1](module, *args, **kwargs)

    return method


class _LaterText:
    """The attribute of a graph that holds its code, until the graph has its own attribute of that name."""

    def __init__(self, make: Callable[[GraphModule], Any]) -> None:
        self._make = make

    def __get__(self, graph: GraphModule, owner: type) -> str:
        return str(self._make(graph).src)


class _LaterCode:
    """The Python code of a graph, which is generated for each use of an attribute."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def _remembered(read: Callable[[Any, str], str | None]) -> Callable[[Any, str], str | None]:
    known: dict[tuple[str, str], str | None] = {}

    def read_text(package: Any, name: str) -> str | None:
        key = str(package._path), name
        if key not in known:
            known[key] = read(package, name)
        return known[key]

    return read_text


class _Kernels(NamedTuple):
    """The kernels of an operator outside and inside of a block, and its rule for fake tensors in it."""

    outside: dict[Any, Any]
    inside: dict[Any, Any]
    rule: Callable[..., Any]


class _Overrides:
    """A block with other kernels, like torch's own, that makes the kernels of an operator only once."""

    def __init__(self, original: Callable[[Any], AbstractContextManager[None]]) -> None:
        self._original = original
        self._known: dict[tuple[OpOverload, object], _Kernels] = {}

    @contextmanager
    def block(self, table: Mapping[OpOverload, Callable[..., Any]]) -> Iterator[None]:
        known = {op: found for op, wanted in table.items() if (found := self._found(op, wanted))}
        new = {op: wanted for op, wanted in table.items() if op not in known}
        # Torch removes the rule that an operator had before its first block, so that block is unlike the later ones.
        outside = {op: op.py_kernels.copy() for op in new if op not in op_implementations_dict}
        with self._original(new):
            for op, kernels in outside.items():
                rule = op_implementations_dict[op]
                self._known[op, _identity(new[op])] = _Kernels(kernels, op.py_kernels.copy(), rule)
            for op, found in known.items():
                _set(op, found.inside)
                op_implementations_dict[op] = found.rule
            try:
                yield
            finally:
                for op, found in known.items():
                    _set(op, found.outside)
                    op_implementations_dict.pop(op, None)

    def _found(self, op: OpOverload, wanted: Callable[..., Any]) -> _Kernels | None:
        found = self._known.get((op, _identity(wanted)))
        return found if found and found.outside == op.py_kernels else None


def _identity(function: Callable[..., Any]) -> object:
    """Return a value that equals that of each function that does the same: torch makes some of them anew each time."""
    if isinstance(function, functools.partial) and not function.args and not function.func.__closure__:
        return function.func.__code__, *function.keywords.items()
    return function


def _set(op: OpOverload, kernels: Mapping[Any, Any]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
