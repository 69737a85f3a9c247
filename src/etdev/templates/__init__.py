"""Project templates of ``etdev init``.

This package contains the templates' files, and a table of their paths in a project. Other packages may register further
templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.resources.abc import Traversable

from etdev import plugins
from etdev.errors import MissingRequirementError
from etdev.plugins import TEMPLATES as GROUP


@dataclass(frozen=True, slots=True)
class Project:
    """Facts about an existing project to which a template's files are added."""

    build: str = "etdev build"
    """Command that builds the project even on a machine without the project's devices, such as a CI machine."""
    out: str = "build"
    """Path of the project's output folder: relative to the config's folder, or absolute.

    The path needs no quotes in a shell.
    """
    extras: str = "build"
    """Extras of etdev that the project needs, separated by commas."""
    tools: str = ""
    """Command that installs tools that no extra contains, for the shell of a CI machine; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template for a project that builds and verifies without changes."""

    summary: str
    """Description in ``etdev init --list``, in one line."""
    files: tuple[str, ...]
    """Paths of the template's files in a project.

    In the template's folder, the names lack a leading dot. Otherwise, a ``.gitignore`` would apply to that folder.
    """
    build: str = "etdev build"
    """Command that builds the template's project on any machine."""
    filled: frozenset[str] = frozenset({"etdev.toml", "README.md"})
    """Project paths of the files that contain placeholders.

    The placeholders are:

    * ``{{name}}``: the project's name
    * ``{{build}}``: the command that builds the project
    * ``{{out}}``: the output folder
    * ``{{ignored}}``: a line that makes git ignore the output folder; empty if the folder is not below the project's
    * ``{{extras}}``: the extras of etdev that the project needs
    * ``{{tools}}``: `` && `` and the command that installs further tools; empty if there are none
    """
    shared: frozenset[str] = frozenset({".gitignore"})
    """Project paths of files to which the user may add lines. An existing shared file is never replaced."""
    base: str | None = None
    """Name of the base template, to which this template adds files; None if there is no base template.

    If the folder has no config, the base template is written first.
    """
    folder: Traversable | None = None
    """Folder with the template's files, such as a :class:`~pathlib.Path`; None for a built-in template."""


_PROJECT = (
    "etdev.toml",
    "model.py",
    "data.py",
    "train.py",
    "weights.safetensors",
    "test_model.py",
    "README.md",
    ".gitignore",
)

TEMPLATES: Mapping[str, Template] = {
    "minimal": Template(
        summary="a small classifier with real data, a target for CPUs and an accuracy gate",
        files=(*_PROJECT, "iris.csv"),
    ),
    "vision": Template(
        summary="an image classifier that takes bytes, in float32 and in 8 bits, with its labels in the file",
        files=_PROJECT,
    ),
    "mcu": Template(
        summary="an int8 classifier with state for microcontrollers: memory banks, int8 inputs, a profile for Ethos-U",
        files=_PROJECT,
    ),
    "multi-device": Template(
        summary="a model in two stages on two devices, which are simulated if missing",
        files=_PROJECT,
        build="etdev build --device-map cuda:0=sim,cuda:1=sim",
    ),
    "ci": Template(
        summary="GitHub Actions, GitLab CI and a pre-commit hook; added to an existing project, or to `minimal`",
        files=(
            ".github/workflows/etdev.yml",
            ".gitlab/etdev.yml",
            ".gitlab-ci.yml",
            ".pre-commit-config.yaml",
            "ci/compare.sh",
            "CI.md",
            ".gitignore",
        ),
        filled=frozenset({".github/workflows/etdev.yml", ".gitlab/etdev.yml", "ci/compare.sh", "CI.md", ".gitignore"}),
        shared=frozenset({".gitlab-ci.yml", ".pre-commit-config.yaml", ".gitignore"}),
        base="minimal",
    ),
    "llm": Template(
        summary="a transformers language model with its cache, in float32 and in 4 bits, for ExecuTorch's LLM runners",
        files=(
            "etdev.toml",
            "model.py",
            "data.py",
            "generate.py",
            "test_model.py",
            "train.py",
            "rhyme.txt",
            "model/config.json",
            "model/generation_config.json",
            "model/model.safetensors",
            "model/tokenizer.json",
            "model/tokenizer_config.json",
            "README.md",
            ".gitignore",
        ),
    ),
}


def get(template: str) -> Template:
    """Return the template with this name.

    Raises :class:`KeyError` for a name that :func:`etdev.plugins.names` does not list. Raises
    :class:`~etdev.errors.MissingRequirementError` for a template of another package that cannot be loaded.
    """
    if template in TEMPLATES:
        plugins.check_name(GROUP, template)
        return TEMPLATES[template]
    found: Template = plugins.load(GROUP, template, (field.name for field in fields(Template)))
    return found


def render(template: str, name: str) -> dict[str, bytes]:
    """Return the contents of a new project called ``name``, by relative path, including the base template's files.

    Raises KeyError for an unknown template.
    """
    chosen = get(template)
    contents = render(chosen.base, name) if chosen.base is not None else {}
    return contents | render_addition(template, Project(build=chosen.build), name)


def render_addition(template: str, project: Project, name: str = "") -> dict[str, bytes]:
    """Return the contents of a template's own files, by relative path, without the base template's files.

    Raises KeyError for an unknown template.
    """
    chosen = get(template)
    values = {
        "name": name,
        "build": project.build,
        "out": project.out,
        "ignored": f"{project.out}/\n" if _is_below(project.out) else "",
        "extras": project.extras,
        "tools": project.tools and f" && {project.tools}",
    }
    folder = chosen.folder or files(__package__).joinpath(template)
    contents = {path: _read(folder, path.removeprefix("."), template) for path in chosen.files}
    for path in chosen.filled & set(chosen.files):
        for placeholder, value in values.items():
            contents[path] = contents[path].replace(b"{{%s}}" % placeholder.encode(), value.encode())
    return contents


def _is_below(folder: str) -> bool:
    """Return True if a normalized path is that of a folder below the working folder."""
    return folder != "." and not folder.startswith(("/", "../")) and folder != ".."


def _read(folder: Traversable, path: str, template: str) -> bytes:
    try:
        return folder.joinpath(path).read_bytes()
    except OSError as error:
        raise MissingRequirementError(
            f"the template {template!r} cannot be read: {error.strerror}",
            where=str(folder.joinpath(path)),
            hint="reinstall the package of the template",
        ) from error


def shared_files(template: str) -> frozenset[str]:
    """Return the project paths of files that are never replaced, including such files of the base template."""
    chosen = get(template)
    return chosen.shared | (shared_files(chosen.base) if chosen.base is not None else frozenset())


def is_project_name(text: str) -> bool:
    """Return True if ``text`` is a valid project name. The name is also used as a file name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text) is not None


def project_name_from(text: str) -> str:
    """Return the nearest valid project name, such as ``my_model`` for ``my model!``."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip("._-").rstrip("_")
    return cleaned[:128] or "model"
