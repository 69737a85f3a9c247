"""Translation of errors of lowering and emission into the terms of the config and of the user's model.

This module recognizes the messages of executorch 1.4.1 and 1.5.1. An unknown message is passed on with the location of
the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from etdev.errors import EmitError, EtdevError, LowerError
from etdev.pipeline.project import Project
from etdev.pipeline.project.quiet import without_logs
from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.trials import find_dtype, on_numbers

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.program.sidecar import Source

_NOT_CORE = re.compile(r"Operator (?:torch\._ops\.)?(?P<op>\S+) is not in Core ATen")
_MIXED_DTYPES = re.compile(r"mismatched dtypes")
_COMPLEX = re.compile(r"torch\.complex\d+")
_MISSING_OUT = re.compile(r"Missing out variants: (?P<ops>\{.*?\})", re.DOTALL)
_NUMBERED_NAME = re.compile(r"'(?P<name>\d+(_\w+?)*)_fused_bn' is not in list")
_CONTROL_FLOW = re.compile(r"Unsupported control flow operator: (?P<op>\w+)")
_KEPT_WHOLE = re.compile(r"with op <EdgeOpOverload: (?P<op>[\w.]+)>.*was not decomposed or delegated")
_NAMED_TUPLE = re.compile(r"No registered serialization name for <class '(?P<kind>.+?)'>")
_NO_TENSOR = re.compile(r"Returning (?P<value>.*) is not yet supported in the emitter|graph_output_allocated not set")
_UNBOUNDED = re.compile(r"Cannot evaluate .*upper bound", re.DOTALL)
_IN_A_BODY = re.compile(r"operator '(?P<op>aten\.\w+_\.\w+)' is not functional")
_LIFTED = re.compile(r"Input spec name \S*lifted_tensor\S* does not match node name")
_DATA_DEPENDENT = re.compile(r"Could not guard on data-dependent expression")
_EXECUTING = re.compile(r"While executing .*target=torch\.ops\.(?P<op>[\w.]+)\]")
_VERBOSE = "run with -v for the whole trace"


_TRACES = "torch._subclasses.fake_tensor"
"""Name of a logger that prints the trace of an error. Torch then raises the error, which has the same trace."""


@contextmanager
def translated_lowering(project: Project, target: str, names: list[str], exported: ExportedModel) -> Iterator[None]:
    """Convert errors of partitioners and of the edge dialect's checks to :class:`~etdev.errors.LowerError`."""
    try:
        with without_logs(_TRACES):
            yield
    except EtdevError:
        raise
    except Exception as error:
        raise _explain_lowering(error, project, target, names, exported) from error


def _explain_lowering(
    error: Exception, project: Project, target: str, names: list[str], exported: ExportedModel
) -> LowerError:
    text = str(error)
    programs = [method.program for method in exported.methods.values()]
    where = project.where("targets", target)
    unsupported = _NOT_CORE.search(text)
    if unsupported:
        return _unsupported_ops(project, programs, unsupported["op"], where)
    if _MIXED_DTYPES.search(text):
        found = text.partition("mismatched dtypes")[2]
        op = re.search(r"(?P<op>[\w.]+\.\w+)\b", found)
        named = f"{op['op']}{line_of(project, decomposed(programs), op['op'])}" if op else ""
        if _COMPLEX.search(found):
            return _complex_tensors(named or "an op", where)
        return _mixed_dtypes(project, exported, where, f": {named}" if named else "")
    kept = _KEPT_WHOLE.search(text)
    if kept:
        return LowerError(
            f"a partitioner ({', '.join(names)}) asked ExecuTorch not to decompose {kept['op']}, but then did not "
            "delegate the op",
            where=project.where("targets", target, "partitioners"),
            hint="this happens in branches of torch.cond: move the op out of the branch, or remove this partitioner",
        )
    numbered = _NUMBERED_NAME.search(root_cause(error))
    if numbered:
        name = numbered["name"].replace("_", ".")
        return LowerError(
            f"XNNPACK cannot fuse a batch norm into {name!r}: the name begins with a digit",
            where=where,
            hint="give the layers a name: assign the nn.Sequential to an attribute of another module",
        )
    written = _IN_A_BODY.search(text)
    if written:
        line = line_of(project, programs, written["op"])
        return LowerError(
            f"{written['op']}{line} writes to a buffer inside a branch or a loop, which ExecuTorch cannot lower",
            where=where,
            hint="return the new value from the branch or the loop, and copy it to the buffer afterwards",
        )
    executing = _EXECUTING.search(text)
    if executing and _DATA_DEPENDENT.search(text):
        return _data_dependent(executing["op"], _line_in(project, text), where)
    if _LIFTED.search(text):
        return LowerError(
            "ExecuTorch cannot lower a method that has no inputs and uses several constants",
            where=where,
            hint="store the constants in buffers of the module, or give the method an input",
        )
    steps = ", ".join(names) or "no partitioner"
    hint = (
        f"{_VERBOSE}; build a target without this partitioner to see if the partitioner is the cause"
        if names
        else _VERBOSE
    )
    return LowerError(
        f"lowering target {target!r} failed ({steps}): {root_cause(error)}{_line_in(project, text)}",
        where=project.where("targets", target, "partitioners") if names else where,
        hint=hint,
    )


def _data_dependent(op: str, line: str, where: str) -> LowerError:
    """Return the error for an op whose result has a size that depends on the values of a tensor."""
    remedy = (
        "select with a mask, `x[torch.arange(x.shape[0]) < n]` instead of `x[:n]`, or cut outside of the model"
        if op.startswith("aten.slice.")
        else "compute with the maximum size, and select from the result with a mask"
    )
    return LowerError(
        f"{op}{line} takes a size from a tensor's value, and ExecuTorch cannot lower it",
        where=where,
        hint=f"{remedy}; {_VERBOSE}",
    )


def _unsupported_ops(project: Project, programs: Iterable[ExportedProgram], met: str, where: str) -> LowerError:
    """Return an error that lists every op outside Core ATen.

    ExecuTorch's own error contains only the first such op, ``met``.
    """
    edge = tuple(decomposed(programs))
    ops = dict.fromkeys((met, *_outside_core(edge)))
    found = [f"{op}{line_of(project, edge, op)}" for op in ops]
    if len(found) == 1:
        message = f"ExecuTorch cannot lower or decompose the op {found[0]}"
        return LowerError(message, where=where, hint="replace it with other ops in the model")
    message = f"ExecuTorch cannot lower or decompose these ops: {', '.join(found)}"
    return LowerError(message, where=where, hint="replace them with other ops in the model")


def _outside_core(programs: Iterable[ExportedProgram]) -> Iterator[str]:
    """Yield the ops that fail ExecuTorch's check for Core ATen, with the names from the check's messages."""
    from executorch.exir.verification.verifier import EXIRATenDialectVerifier

    verifier = EXIRATenDialectVerifier()
    for program in programs:
        graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
        targets = [node.target for graph in graphs for node in graph.nodes if node.op == "call_function"]
        for target in dict.fromkeys(targets):
            try:
                verifier.check_valid_op(target)
            except Exception as error:  # noqa: BLE001 - errors with other messages are ignored
                refused = _NOT_CORE.search(str(error))
                if refused:
                    yield refused["op"]


def _complex_tensors(op: str, where: str) -> LowerError:
    return LowerError(
        f"{op} takes or returns a complex tensor, and ExecuTorch has no complex tensors",
        where=where,
        hint="compute the real and the imaginary part with real ops (an FFT is a product with two constant matrices), "
        "or do this step outside of the model",
    )


def _mixed_dtypes(project: Project, exported: ExportedModel, where: str, what: str) -> LowerError:
    for name, signature in exported.signatures.items():
        remedy = find_dtype(signature, on_numbers(exported.eager[name]))
        if remedy is not None:
            return LowerError(
                f"method {name!r} does not accept {remedy.found}: an op would get tensors of different dtypes{what}",
                where=project.where("methods", name, *remedy.key),
                hint=f"{remedy.hint}; or convert the input in the model",
            )
    return LowerError(
        f"an op would get tensors of different dtypes{what}",
        where=where,
        hint="convert one of the tensors in the model, with tensor.to(dtype)",
    )


def explain_emission(error: Exception, project: Project, target: str, programs: Iterable[ExportedProgram]) -> EmitError:
    """Return the error to raise in place of ``error``, which ``to_executorch`` raised for the lowered ``programs``."""
    text = str(error)
    where = project.where("targets", target)
    missing = _MISSING_OUT.search(text)
    if missing:
        ops = sorted(re.findall(r"'([^']+)'", missing["ops"]))
        return _missing_out_variants(ops, _lines_of(project, programs, ops), where)
    returned = _NAMED_TUPLE.search(text)
    if returned:
        return EmitError(
            f"a method returns a {returned['kind']}, which a program cannot return",
            where=where,
            hint="return its fields as a plain tuple",
        )
    valueless = _NO_TENSOR.search(text)
    if valueless:
        return EmitError(
            f"a method returns {valueless['value']!r}, which a program cannot return"
            if valueless["value"] is not None
            else "a method returns no tensor",
            where=where,
            hint="return tensors and numbers only",
        )
    if _UNBOUNDED.search(text):
        line = line_of(project, programs, "item") or line_of(project, programs, "_local_scalar_dense")
        return EmitError(
            f"a size comes from a tensor's value{line} and has no upper bound, so memory cannot be planned for it",
            where=where,
            hint="set an upper bound in the model, for example torch._check(n <= 128)",
        )
    control = _CONTROL_FLOW.search(text)
    if control:
        return EmitError(
            f"ExecuTorch cannot emit {control['op']}",
            where=where,
            hint="use torch.cond, or unroll the loop in the model",
        )
    return EmitError(f"emitting target {target!r} failed: {root_cause(error)}", where=where, hint=_VERBOSE)


def _missing_out_variants(ops: list[str], lines: list[str], where: str) -> EmitError:
    quantized = all(op.startswith(("quantized_decomposed::", "torchao::")) for op in ops)
    named = ops if quantized else [op + line for op, line in zip(ops, lines, strict=True)]
    message = "these ops have no out variant, so an ExecuTorch kernel cannot run them: " + ", ".join(named)
    if quantized:
        return EmitError(
            message,
            where=where,
            hint="add a partitioner that takes these ops (xnnpack): they come from quantization, and no delegate "
            "took them",
        )
    return EmitError(
        message,
        where=where,
        hint="register one with torch.library in a module in project.imports, or replace the op with other ops",
    )


def decomposed(programs: Iterable[ExportedProgram]) -> Iterator[ExportedProgram]:
    """Decompose the programs into the ops that lowering checks; called only after an error, because it is slow."""
    return (program.run_decompositions() for program in programs)


def _lines_of(project: Project, programs: Iterable[ExportedProgram], ops: list[str]) -> list[str]:
    programs = tuple(programs)
    return [line_of(project, programs, op.replace("::", ".")) for op in ops]


def line_of(project: Project, programs: Iterable[ExportedProgram], op: str) -> str:
    """Return the source line of the first node of an op, as `` (model.py:12, in forward)``, or an empty text."""
    for program in programs:
        graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
        for node in (node for graph in graphs for node in graph.nodes):
            if node.op == "call_function" and op in str(node.target) and (line := line_of_node(project, node)):
                return line
    return ""


def line_of_node(project: Project, node: Node) -> str:
    """Return the source line of a node, as `` (model.py:12, in forward)``, or an empty text if it is not known."""
    return _text_of(SourceLines(project.loaded.root).of([node]))


def _line_in(project: Project, text: str) -> str:
    """Return the user's source line in the text of an error, as `` (model.py:12, in forward)``, or an empty text."""
    return _text_of(SourceLines(project.loaded.root).in_trace(text, installed=False))


def _text_of(source: Source | None) -> str:
    return "" if source is None else f" ({source.file}:{source.line}, in {source.function})"


def root_cause(error: BaseException) -> str:
    """Return the first line of the innermost exception's message; pass managers wrap an exception several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
