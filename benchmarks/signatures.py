"""Write ``src/etdev/program/signature_table.py``, the operator signatures that the reader checks calls against.

The table has every operator of the installed runtime, and every other operator that etdev's own tables name. Schemas
come from PyTorch and from executorch; four operators of ``executorch_prim`` have none there, and are listed here.

    python benchmarks/signatures.py            # print the table
    python benchmarks/signatures.py --write    # replace the file
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from etdev import compat
from etdev.linker.shapes import RULES as LINKER_SHAPES
from etdev.program import signature_table
from etdev.program.analysis.inplace import DEFAULT
from etdev.validator.semantics import operators, shapes

HEADER = '''"""Signatures of operators, one per line.

Generated: ``python benchmarks/signatures.py --write`` replaces this file. Types are those of the file format. For
example, the number of an element type, a layout or a memory format is an ``int``. Outputs follow the arrow. ``self``
after the arrow means that the call returns its first argument.
"""

SIGNATURES = """
'''
_PRIMS = (
    "executorch_prim::et_copy_index.tensor(Tensor copy_to, Tensor copy_from, int index) ->",
    "executorch_prim::et_view.default(Tensor self, int[] size, Tensor out) ->",
    "executorch_prim::floordiv.int(int a, int b) -> int",
    "executorch_prim::mod.int(int a, int b) -> int",
)
"""Operators without a schema in Python. Source: ``kernels/prim_ops`` of executorch."""
_NUMBERS = ("SymInt", "ScalarType", "MemoryFormat", "Layout", "Device")


def render(lines: Iterable[str]) -> str:
    """Return the file's text."""
    return HEADER + "\n".join(lines) + '\n"""\n'


def signatures() -> Iterator[str]:
    """Yield the signature of each operator, sorted by name."""
    known = {line.partition("(")[0]: line for line in _PRIMS} | _cortex_m()
    for name in sorted(known.keys() | _wanted()):
        line = known.get(name) or _signature(name)
        if line is not None:
            yield line


def _wanted() -> set[str]:
    """Return the operators of the runtime and those that etdev's tables name."""
    import executorch.kernels.quantized  # noqa: F401 - registers the schemas of quantized operators
    from executorch.exir import to_edge  # noqa: F401 - registers those of executorch's own operators

    runtime = importlib.import_module(compat.runtime_module())
    tables = (DEFAULT, LINKER_SHAPES, shapes.RULES, operators.IN_PLACE, operators.SIZES, operators.ALSO_CHANGED)
    return {*runtime._get_operator_names(), *(name for table in tables for name in table)}


def _signature(name: str) -> str | None:
    import torch

    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None or (overload or "default") not in packet.overloads():
        return None
    return _line(name, getattr(packet, overload or "default")._schema)


def _cortex_m() -> dict[str, str]:
    """Return the signatures of ExecuTorch's library for Cortex-M, from the library's list.

    Their Python functions cannot be imported without packages for Arm's processors.
    """
    import torch

    spec = importlib.util.find_spec("executorch")
    assert spec is not None
    folder = Path(next(iter(spec.submodule_search_locations or ())))
    text = (folder / "backends" / "cortex_m" / "ops" / "operators.yaml").read_text(encoding="utf-8")
    schemas = [torch._C.parse_schema(line) for line in re.findall(r"^- func: (.*)$", text, re.MULTILINE)]
    names = [f"{schema.name}.{schema.overload_name}" for schema in schemas]
    return {name: _line(name, schema) for name, schema in zip(names, schemas, strict=True)}


def _line(name: str, schema: Any) -> str:
    given = [f"{_type(argument)} {argument.name}" for argument in schema.arguments if not argument.is_out]
    outputs = [_type(argument) for argument in schema.arguments if argument.is_out]
    if not outputs:
        changed = [argument.name for argument in schema.arguments if argument.alias_info is not None]
        outputs = ["self"] if changed else [_type(item) for item in schema.returns]
    return f"{name}({', '.join(given)}) -> {', '.join(outputs)}"


def _type(argument: Any) -> str:
    """Return the type of an argument or of a result, in the words of the file format."""
    return _spelled(str(argument.real_type))


def _spelled(found: str) -> str:
    """Spell ``Optional[List[SymInt]]`` as ``int[]?``."""
    outer, bracket, inner = found.partition("[")
    if bracket:
        return _spelled(inner.removesuffix("]")) + {"Optional": "?", "List": "[]"}[outer]
    return {"number": "Scalar", **dict.fromkeys(_NUMBERS, "int")}.get(found, found)


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace src/etdev/program/signature_table.py")
    text = render(signatures())
    if parser.parse_args().write:
        Path(signature_table.__file__).write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
