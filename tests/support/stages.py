"""Running a project up to a stage, and what its failure has to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import pytest

from etdev.errors import EtdevError
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Silent, StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedModel, LoadedModel, LoweredModel
from etdev.pipeline.stages.emit import ObjectProgram, emit_object
from etdev.pipeline.stages.load.model import load_model
from etdev.pipeline.stages.lower import lower_model
from etdev.pipeline.stages.models import Models


def load(project: Project) -> LoadedModel:
    """Stage *load*."""
    with quiet_libraries(), UserCode() as user:
        return load_model(project, user)


def prepare(project: Project, target: str = "cpu") -> tuple[ExportedModel, ExportedModel]:
    """The stages to *export* and *quantize*: the float model and the one that the target lowers."""
    with quiet_libraries(), UserCode() as user:
        return Models(project, user).prepare(target, StageClock(target, Silent()))


def export(project: Project) -> ExportedModel:
    """The stages to *export*."""
    return prepare(project)[0]


def quantize(project: Project) -> ExportedModel:
    """The stages to *quantize*."""
    return prepare(project)[1]


def lower(project: Project, target: str = "cpu") -> LoweredModel:
    """The stages to *lower*."""
    with quiet_libraries(), UserCode() as user:
        _, exported = Models(project, user).prepare(target, StageClock(target, Silent()))
        return lower_model(project, exported, target)


def emit(project: Project, target: str = "cpu") -> ObjectProgram:
    """The stages to *emit*."""
    with quiet_libraries(), UserCode() as user:
        _, exported = Models(project, user).prepare(target, StageClock(target, Silent()))
        lowered = lower_model(project, exported, target)
        return emit_object(project, lowered, exported, target, object_place(project, target))


@dataclass(frozen=True)
class Failure:
    """What an error has to say."""

    kind: type[EtdevError]
    where: str | None
    message: str
    """The whole message, or if it ends in ``…`` its beginning."""
    hint: str | None = None


def check_failure(run: Callable[[], object], expected: Failure) -> EtdevError:
    """Run something that has to fail in just this way."""
    with pytest.raises(EtdevError) as caught:
        run()
    error = caught.value
    message = error.message
    if expected.message.endswith("…"):
        message = message[: len(expected.message) - 1] + "…"
    assert (type(error), error.where, message, error.hint) == (
        expected.kind,
        expected.where,
        expected.message,
        expected.hint,
    )
    assert error.exit_code == expected.kind.exit_code
    return error


def source(text: str) -> str:
    """A module's text without its common indentation."""
    return dedent(text).lstrip("\n")
