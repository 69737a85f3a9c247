"""The files of a target come together: none stands next to the program of another build, wherever it is cut. E2, E5."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from etdev.pipeline.project import Project
from etdev.pipeline.project.places import reported_data
from etdev.pipeline.results.result import DataFile
from etdev.pipeline.stages.staging import StagedObjects, StagedTarget
from support.projects import LINEAR_CONFIG, make_project
from support.reports import write_report

OBJECTS = ("tiny.object.pte", "tiny.object.json")


def project(folder: Path, *, more: str = "") -> Project:
    return make_project(folder, f"{LINEAR_CONFIG}\n[targets.cpu]\n{more}\n")


def built(folder: Path, content: bytes, data: bytes | None, name: str = "w.ptd") -> None:
    """What an earlier build has left."""
    place = folder / "build" / "cpu"
    place.mkdir(parents=True, exist_ok=True)
    (place / "tiny.pte").write_bytes(content)
    for objects in OBJECTS:
        (place / objects).write_bytes(b"objects of " + content)
    stated = [] if data is None else [DataFile(name=name, size=len(data), sha256="0")]
    if data is not None:
        (place / name).write_bytes(data)
    write_report(place / "tiny.pte", data=stated, notes=(content.decode(),))


@contextmanager
def staging(found: Project, data: Sequence[str] = ()) -> Iterator[StagedTarget]:
    """The files of a new build, with its object program."""
    with StagedObjects(found, "cpu") as objects:
        for name in OBJECTS:
            (objects.folder / name).write_bytes(b"objects of new")
        with StagedTarget(found, "cpu", objects, data) as staged:
            yield staged


def stage(staged: StagedTarget, content: bytes, data: bytes | None) -> None:
    staged.program.path.write_bytes(content)
    for file in staged.data.values():
        file.path.write_bytes(data or b"")
    staged.record.path.write_bytes(b"record of " + content)
    staged.operators.path.write_bytes(b"operators of " + content)
    staged.write_report(json.dumps({"targets": [{"notes": [content.decode()]}]}))


def there(folder: Path) -> dict[str, bytes]:
    place = folder / "build" / "cpu"
    found = {path.name: path.read_bytes() for path in place.iterdir()}
    if "report.json" in found:
        found["report.json"] = b"report of " + json.loads(found["report.json"])["targets"][0]["notes"][0].encode()
    return found


def of(content: bytes, *names: str) -> dict[str, bytes]:
    """The report and the object program of a build, and other files of it."""
    files = {"report.json": b"report of ", **dict.fromkeys(OBJECTS, b"objects of "), **dict.fromkeys(names, b"")}
    return {name: begin + content for name, begin in files.items()}


def test_accepted(tmp_path: Path) -> None:
    with staging(project(tmp_path, more="etrecord = true\nselected_operators = true"), ["w.ptd"]) as staged:
        stage(staged, b"new", b"new weights")
        assert staged.settle(rejected=False) == tmp_path / "build" / "cpu" / "tiny.pte"
    assert there(tmp_path) == {
        **of(b"new", "tiny.pte"),
        "w.ptd": b"new weights",
        "tiny.etrecord": b"record of new",
        "tiny.operators.yaml": b"operators of new",
    }


def test_rejected(tmp_path: Path) -> None:
    built(tmp_path, b"old", b"old weights")
    with staging(project(tmp_path, more="etrecord = true\nselected_operators = true"), ["w.ptd"]) as staged:
        stage(staged, b"new", b"new weights")
        assert staged.settle(rejected=True).name == "tiny.pte.rejected"
    assert there(tmp_path) == {**of(b"new", "tiny.pte.rejected"), "w.ptd.rejected": b"new weights"}


def test_without_a_verdict_all_stays(tmp_path: Path) -> None:
    built(tmp_path, b"old", b"old weights")
    with staging(project(tmp_path), ["w.ptd"]) as staged:
        stage(staged, b"new", b"new weights")
    assert there(tmp_path) == {**of(b"old", "tiny.pte"), "w.ptd": b"old weights"}


@pytest.mark.parametrize(("name", "left"), [(None, {}), ("other.ptd", {"other.ptd": b"new weights"})])
def test_weights_of_before_go(name: str | None, left: dict[str, bytes], tmp_path: Path) -> None:
    built(tmp_path, b"old", b"old weights")
    with staging(project(tmp_path), [name] if name else []) as staged:
        stage(staged, b"new", b"new weights")
        staged.settle(rejected=False)
    assert there(tmp_path) == {**of(b"new", "tiny.pte"), **left}


def test_the_same_weights_stay_where_they_are(tmp_path: Path) -> None:
    """A change of the plan alone replaces the program at once."""
    built(tmp_path, b"old", b"weights")
    before = (tmp_path / "build/cpu/w.ptd").stat().st_ino
    with staging(project(tmp_path), ["w.ptd"]) as staged:
        stage(staged, b"new", b"weights")
        staged.settle(rejected=False)
    assert there(tmp_path) == {**of(b"new", "tiny.pte"), "w.ptd": b"weights"}
    assert (tmp_path / "build/cpu/w.ptd").stat().st_ino == before


class _Cut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("name", ["w.ptd", "other.ptd", None])
@pytest.mark.parametrize("rejected", [False, True], ids=["accepted", "rejected"])
def test_at_no_step_are_there_files_of_two_builds(
    rejected: bool, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    for cut in range(30):
        folder = tmp_path / str(cut)
        built(folder, b"old", b"old weights")
        with monkeypatch.context() as patch, staging(project(folder), [name] if name else []) as staged:
            stage(staged, b"new", b"new weights")
            count = 0
            for function in ("replace", "unlink"):
                real = getattr(os, function)

                def step(*args: object, real: object = real, cut: int = cut, **more: object) -> None:
                    nonlocal count
                    if count == cut:
                        raise _Cut
                    count += 1
                    real(*args, **more)  # type: ignore[operator]

                patch.setattr(os, function, step)
            try:
                staged.settle(rejected=rejected)
                done = True
            except _Cut:
                done = False
            patch.undo()
        found = there(folder)
        weights = {key: value for key, value in found.items() if key.endswith(".ptd")}
        if "tiny.pte" in found:
            owner = found["tiny.pte"]
            assert all(value == owner + b" weights" for value in weights.values()), (cut, found)
            assert owner == b"old" or name is None or weights, (cut, found)
        whose = {value.removeprefix(b"objects of ") for key, value in found.items() if key in OBJECTS}
        assert len(whose) <= 1, (cut, found)
        if "report.json" in found:
            program = found.get("tiny.pte", found.get("tiny.pte.rejected"))
            assert found["report.json"] == b"report of " + (program or b"old"), (cut, found)
        if "tiny.pte" in found:
            assert whose == {found["tiny.pte"]}, (cut, found)
        assert not any(key.startswith("tiny.") and key.endswith((".etrecord", ".yaml")) for key in found)
        steps = cut
        if done:
            break
    assert 6 <= steps < 29


@pytest.mark.parametrize(
    "report",
    ["", "{}", '{"targets": 3}', '{"targets": [{"data": [{"name": "../other.pte"}]}]}', '{"targets": [{"data": 3}]}'],
)
def test_a_report_that_says_nothing(report: str, tmp_path: Path) -> None:
    built(tmp_path, b"old", None)
    (tmp_path / "build/cpu/report.json").write_text(report)
    assert reported_data(project(tmp_path), "cpu") == []


def test_no_report_leads_out_of_the_folder(tmp_path: Path) -> None:
    built(tmp_path, b"old", None)
    write_report(tmp_path / "build/cpu/tiny.pte", data=(DataFile(name="../../x.ptd", size=0, sha256="0"),))
    assert reported_data(project(tmp_path), "cpu") == [(tmp_path / "build/cpu/x.ptd", False)]
