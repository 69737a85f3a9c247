"""The page ``docs/python.md``: the public functions and classes of the package, from their docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import etdev
from etdev import errors

_HEAD = """\
# Python API

<!-- `make docs` writes this page from the docstrings of src/etdev. -->

This page is for people who build, verify or look at programs from Python. You will find each public function with its
arguments, what it returns and what it raises.

Everything here is an attribute of `etdev`, such as `etdev.build`. Other modules may change in any version, except those
that [extending.md](extending.md) names. `import etdev` imports neither torch nor executorch.

```python
import etdev

info = etdev.inspect("build/cpu/my-model.pte")
print(info.memory["cpu"], [method.name for method in info.methods])
```

"""
_SECTIONS = (
    ("Functions", ("build", "verify", "deploy", "inspect", "relink", "report", "diff")),
    ("Results", ("BuildResult", "DeployResult", "ProgramInfo", "RelinkResult", "ProgramDiff")),
)


def page() -> str:
    """Return the page. Raises if it leaves out a public name."""
    listed = {name for _, names in _SECTIONS for name in names}
    assert listed == set(etdev.__all__), listed ^ set(etdev.__all__)
    parts = [_HEAD]
    for title, names in _SECTIONS:
        parts.append(f"## {title}\n\n")
        parts += [_entry(name, getattr(etdev, name)) for name in names]
    parts.append("## Errors\n\n" + _errors())
    return "".join(parts).rstrip() + "\n"


def _entry(name: str, found: Any) -> str:
    text = _markdown(inspect.getdoc(found) or "")
    if inspect.isclass(found):
        members = "".join(_member(*item) for item in _members(found))
        return f"### {name}\n\n{text}\n\n{members}\n" if members else f"### {name}\n\n{text}\n\n"
    return f"### {name}\n\n```python\n{_signature(name, found)}\n```\n\n{text}\n\n"


def _signature(name: str, found: Any) -> str:
    """Return a definition without body, each parameter on a line of its own if they do not fit on one."""
    signature = inspect.signature(found)
    parameters = [_parameter(parameter) for parameter in signature.parameters.values()]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    result = signature.return_annotation
    ends = f") -> {result}: ..." if result is not inspect.Signature.empty else "): ..."
    one = f"def {name}({', '.join(parameters)}{ends}"
    if len(one) <= 100:
        return one
    return "\n".join([f"def {name}(", *(f"    {parameter}," for parameter in parameters), ends])


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f" = {_literal(parameter.default)}"
    return f"{parameter.name}: {parameter.annotation}{default}"


def _literal(value: object) -> str:
    if isinstance(value, frozenset) and value:
        return f"frozenset({{{', '.join(map(_literal, sorted(value)))}}})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _members(found: Any) -> Iterator[tuple[str, str]]:
    """Return the public methods and properties that the class itself defines, each with its docstring."""
    for name, member in vars(found).items():
        called = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(called) and called.__doc__:
            shown = name if isinstance(member, property) else f"{name}()"
            yield shown, inspect.getdoc(called) or ""


def _member(name: str, text: str) -> str:
    return f"* `{name}`: {' '.join(_markdown(text).split())}\n"


def _errors() -> str:
    rows = ["Every expected error is an `etdev.errors.EtdevError`. `exit_code` is that of the command line.\n\n"]
    rows.append("| error | exit code | meaning |\n|---|---|---|\n")
    for name, found in vars(errors).items():
        if inspect.isclass(found) and issubclass(found, errors.EtdevError) and found.__module__ == errors.__name__:
            meaning = " ".join(_markdown(inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("|", "\\|")
            rows.append(f"| `{name}` | {int(found.exit_code)} | {meaning} |\n")
    return "".join(rows)


def _markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    plain = re.sub(r":\w+:`~?\.?(?:[\w.]*\.)?(\w+)`", r"`\1`", text.replace("``", "`"))
    return re.sub(r"^(Args|Returns|Raises|Yields):$", r"**\1**\n", plain, flags=re.MULTILINE)
