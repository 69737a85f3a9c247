"""Templates of generated files.

Each placeholder ``@NAME@`` is replaced with a text. Lines from ``//@if NAME`` to ``//@end`` are included only if the
condition is true. CMake and Markdown files use the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.resources import files

_NAME = re.compile(r"@([A-Z_]+)@")
_LINE = re.compile(r"^//@(if|else|end) ?(\w*)$")


def render(template: str, texts: Mapping[str, str], conditions: Collection[str]) -> bytes:
    """Return the content of a generated file.

    ``texts`` maps the name of each placeholder to a text. ``conditions`` contains the names of the true conditions.
    """
    source = files("etdev.runner").joinpath("project", template).read_text(encoding="utf-8")
    lines: list[str] = []
    shown = [True]
    for line in source.splitlines():
        found = _LINE.match(line)
        if found is None:
            if all(shown):
                lines.append(line)
        elif found[1] == "if":
            shown.append(found[2] in conditions)
        elif found[1] == "else":
            shown[-1] = not shown[-1]
        else:
            shown.pop()
    text = _NAME.sub(lambda match: texts[match[1]], "\n".join(lines))
    return (text.rstrip("\n") + "\n").encode()
