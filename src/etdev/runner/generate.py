"""Generation of a project's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etdev.errors import RunnerError
from etdev.pipeline.stages.selected_operators import operators_yaml
from etdev.runner.embed import c_array
from etdev.runner.facts import Facts, collect_facts
from etdev.runner.header import header_texts
from etdev.runner.identifiers import comment, string_literal
from etdev.runner.readme import readme_conditions, readme_texts
from etdev.runner.source import ProgramFile
from etdev.runner.tables import array_name, table_texts
from etdev.runner.templates import render

PACKAGE_VERSION = "1.5"
"""Oldest version of ExecuTorch whose CMake package contains the libraries that a project needs."""


def project_files(source: ProgramFile, *, embed: bool = False) -> dict[str, bytes]:
    """Map the name of each file of a project to its content. The same arguments always produce the same contents.

    If ``embed`` is True, the program and its data files are C arrays. Otherwise, the project contains copies of these
    files and reads the copies at run time. Raises :class:`~etdev.errors.RunnerError` if no project can be generated for
    the program.
    """
    facts = collect_facts(source, embed=embed)
    texts = _common(facts)
    conditions = {"embed" if embed else "file", *(["data"] if source.data else [])}
    rendered = {
        "CMakeLists.txt": ("CMakeLists.txt", _cmake_texts(facts)),
        "README.md": ("README.md", readme_texts(facts)),
        "main.cc": ("main.cc", {}),
        "runner.cc": ("runner.cc", table_texts(facts)),
        "runner.h": ("runner.h", {}),
        f"{facts.name}_memory.h": ("memory.h", header_texts(facts)),
    }
    found = {
        name: render(template, texts | own, conditions | readme_conditions(facts))
        for name, (template, own) in rendered.items()
    }
    found[f"{facts.name}.operators.yaml"] = operators_yaml(source.program, facts.files[0][0]).encode()
    for number, (name, content) in enumerate(facts.files):
        if embed:
            parts = c_array(content, array_name(facts, number), facts.file_alignment, f"{name}, as it was built.")
            found[_array_file(number)] = b"".join(parts)
        else:
            _refuse_twice(name, found, source)
            found[name] = content
    return found


def _refuse_twice(name: str, found: Mapping[str, bytes], source: ProgramFile) -> None:
    if name in found:
        raise RunnerError(
            f"the project would have two files with the name {name}", where=source.name, hint="rename the data file"
        )


def _common(facts: Facts) -> dict[str, str]:
    return {
        "NAME": facts.name,
        "PROGRAM": facts.files[0][0],
        "ID": facts.identifier,
        "MACRO": facts.macro,
        "FIRST_ARENA": facts.layout.arenas[0].name.upper() if facts.layout.arenas else "ARENA_1",
        "DEFAULT": comment(facts.default_method),
        "DEFAULT_LITERAL": string_literal(facts.default_method),
        "VERSION": PACKAGE_VERSION,
    }


def _array_file(number: int) -> str:
    return f"file_{number}.c"


def _cmake_texts(facts: Facts) -> dict[str, str]:
    arrays = [_array_file(number) for number in range(len(facts.files))] if facts.embed else []
    return {
        "LANGUAGES": "C CXX" if facts.embed else "CXX",
        "REASONS": _lines(f"#   {library.component}: {library.reason}" for library in facts.libraries),
        "COMPONENTS": _lines(f"  {library.component}" for library in facts.libraries),
        "SOURCES": _lines(f"  {name}" for name in ("main.cc", "runner.cc", *arrays)),
        "LIBRARIES": _lines(f"  executorch::{library.component}" for library in facts.libraries),
    }


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
