"""The cache's folder: whole, bounded, and of use to several processes at once (judging points 1 and 2; E2)."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.files import file_sha256
from etdev.pipeline.cache import Cache
from etdev.pipeline.cache.digests import Digests, digest_of_names
from etdev.pipeline.cache.entries import Entry, Facts, Output, Reads, differences, flattened
from etdev.pipeline.cache.store import Store
from support.projects import LINEAR_CONFIG, make_project
from support.reports import write_report

FACTS = Facts(settings={"a": 1}, versions={"etdev": "1"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", 1000)


def output(content: bytes) -> Output:
    return Output(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def add(store: Store, folder: Path, content: bytes, *, used: float = 0.0, target: str = "cpu") -> Entry:
    """A build of one file, used so many seconds ago."""
    path = folder / "made"
    path.write_bytes(content)
    found = output(content)
    store.keep(path, found)
    facts = Facts(settings={"content": found.sha256}, versions={})
    entry = Entry(level="linked", project="p", target=target, facts=facts, reads=Reads(), outputs={"made": found})
    store.add(entry)
    then = time.time() - used
    for place in store.folder.rglob("*"):
        if place.is_file() and (found.sha256[2:] in place.name or facts.digest[:32] in place.name):
            os.utime(place, (then, then))
    return entry


def test_what_is_kept_is_put_back(store: Store, tmp_path: Path) -> None:
    entry = add(store, tmp_path, b"content")
    assert store.entries("p", "cpu", "linked") == [entry]
    assert store.entries("p", "cpu", "linked", entry.facts) == [entry]
    assert store.entries("p", "cpu", "linked", FACTS) == []
    assert store.entries("p", "cpu", "object") == store.entries("p", "gpu", "linked") == []
    assert store.copy_out(entry.outputs["made"], tmp_path / "place")
    assert (tmp_path / "place").read_bytes() == b"content"
    assert store.holds(entry.outputs["made"])


@pytest.mark.parametrize("wrong", [b"", b"CONTENT", b"content and more"])
def test_what_is_damaged_is_not_put_back(store: Store, tmp_path: Path, wrong: bytes) -> None:
    entry = add(store, tmp_path, b"content")
    kept = next(path for path in (store.folder / "files").rglob("*") if path.is_file())
    kept.write_bytes(wrong)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "made").write_bytes(b"before")

    with Cache(store) as cache:
        assert not cache.restore(entry, tmp_path / "out")
        assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"before"]
        assert not store.copy_out(entry.outputs["made"], tmp_path / "place")  # By now it is gone.
        store.keep(tmp_path / "made", entry.outputs["made"])
        assert cache.restore(entry, tmp_path / "out")
    assert [path.read_bytes() for path in (tmp_path / "out").iterdir()] == [b"content"]


def test_a_file_that_changes_while_it_is_kept_is_not(store: Store, tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"content")
    with pytest.raises(OSError, match="changed while it was being copied"):
        store.keep(tmp_path / "made", output(b"CONTENT"))
    assert store.stats().files == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 2}', b"\xff\xfe"])
def test_an_entry_that_cannot_be_read_is_none(store: Store, tmp_path: Path, content: bytes) -> None:
    add(store, tmp_path, b"content")
    path = next((store.folder / "entries").glob("*/*.json"))
    path.write_bytes(content)
    assert store.entries("p", "cpu", "linked") == []
    assert store.collect().entries == 1


@pytest.mark.parametrize(
    "changed", [pytest.param(0x01, id="a bit"), pytest.param(0xFF, id="a byte"), pytest.param(None, id="cut")]
)
def test_no_damaged_entry_is_used(store: Store, tmp_path: Path, changed: int | None) -> None:
    """At every byte; the file can still be valid JSON, with another name of an output or other facts of the stages."""
    entry = add(store, tmp_path, b"content")
    path = next((store.folder / "entries").glob("*/*.json"))
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] if changed is None else flipped(good, at, changed))
        assert store.entries("p", "cpu", "linked") in ([], [entry])  # Damaged white space changes nothing.


def flipped(content: bytes, at: int, bits: int) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def test_what_was_used_longest_ago_goes_first(store: Store, tmp_path: Path) -> None:
    old = add(store, tmp_path, b"1" * 400, used=9000)
    new = add(store, tmp_path, b"2" * 400, used=8000)
    assert not store.is_full()
    store.use(old)
    third = add(store, tmp_path, b"3" * 400, used=7000)
    assert store.is_full()
    freed = store.collect()

    assert (freed.entries, freed.files, freed.size) == (1, 1, 400)
    assert [store.holds(entry.outputs["made"]) for entry in (old, new, third)] == [True, False, True]
    assert {entry.facts.digest for entry in store.entries("p", "cpu", "linked")} == {
        old.facts.digest,
        third.facts.digest,
    }
    assert store.stats().size == 800
    assert store.collect(0).size == 800
    assert store.stats().files == store.stats().linked == 0


def test_files_of_a_build_that_is_still_writing_stay(store: Store, tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"content")
    store.keep(tmp_path / "made", output(b"content"))
    assert store.collect().files == 0
    place = next(path for path in (store.folder / "files").rglob("*") if path.is_file())
    os.utime(place, (0, 0))
    assert store.collect().files == 1


def test_an_entry_without_its_files_goes(store: Store, tmp_path: Path) -> None:
    add(store, tmp_path, b"content")
    for place in (store.folder / "files").rglob("*"):
        if place.is_file():
            place.unlink()
    assert store.collect().entries == 1


def test_an_empty_cache(store: Store) -> None:
    assert store.entries("p", "cpu", "linked") == []
    assert (store.stats().size, store.collect().entries, store.is_full()) == (0, 0, False)
    assert not store.folder.exists()


# Digests


def test_a_folder_that_cannot_be_read_has_no_entries(tmp_path: Path) -> None:
    """Another user's, for example: what only asks the cache goes on without it."""
    assert Store(tmp_path / ("x" * 300), 1000).entries("net", "cpu", "object") == []


def test_digests_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    time.sleep(1.05)  # Younger ones are read again.
    with Digests(tmp_path / "memory.sqlite") as digests:
        first = digests.of(path)
    assert first == hashlib.sha256(b"content").hexdigest()
    monkeypatch.setattr(hashlib, "file_digest", None)
    with Digests(tmp_path / "memory.sqlite") as digests:
        assert digests.of(path) == first


@pytest.mark.parametrize("memory", [None, "memory.sqlite"])
def test_a_change_within_the_clocks_step_is_seen(tmp_path: Path, memory: str | None) -> None:
    """Of the same size; the time of change is set to what it was, too."""
    path = tmp_path / "file"
    place = None if memory is None else tmp_path / memory
    path.write_bytes(b"content")
    os.utime(path, ns=(5, 5))
    with Digests(place) as digests:
        digests.of(path)
        path.write_bytes(b"CONTENT")
        os.utime(path, ns=(5, 5))
        assert digests.of(path) == hashlib.sha256(b"CONTENT").hexdigest()


def test_a_memory_that_is_damaged_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    (tmp_path / "memory.sqlite").write_bytes(b"no database" * 100)
    for _ in range(2):
        with Digests(tmp_path / "memory.sqlite") as digests:
            assert digests.of(path) == hashlib.sha256(b"content").hexdigest()


@pytest.fixture
def old_files(tmp_path: Path) -> dict[Path, str]:
    """Files that are old enough for a digest to be stored, with their digests."""
    found = {tmp_path / name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b", "c")}
    for path in found:
        path.write_text(path.name)
    time.sleep(1.05)
    return found


def digests_with(database: Path, files: dict[Path, str]) -> dict[Path, str]:
    with Digests(database) as digests:
        return {path: digests.of(path) for path in files}


@pytest.mark.parametrize(
    "whole", [pytest.param(False, id="a row"), pytest.param(True, marks=pytest.mark.slow, id="the file")]
)
def test_no_damaged_digest_is_used(tmp_path: Path, old_files: dict[Path, str], whole: bool) -> None:
    """Builds ended with UnicodeDecodeError, or took the damaged digest as the file's. At every byte."""
    database = tmp_path / "memory.sqlite"
    digests_with(database, old_files)
    good = database.read_bytes()
    digest = good.index(next(iter(old_files.values())).encode())
    for at in range(len(good)) if whole else range(digest - 100, digest + 64):
        database.write_bytes(flipped(good, at, 1 << at % 8))
        assert digests_with(database, old_files) == old_files


def _column(database: Path) -> None:
    database.write_bytes(database.read_bytes().replace(b"checksum TEXT", b"chexksum TEXT"))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda database: database.write_bytes(b"no database" * 100), id="no database"),
        pytest.param(lambda database: database.write_bytes(flipped(database.read_bytes(), 4096, 0xFF)), id="a page"),
        pytest.param(_column, id="a column"),
    ],
)
def test_a_database_that_sqlite_rejects_is_replaced(
    tmp_path: Path, old_files: dict[Path, str], monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    database = tmp_path / "memory.sqlite"
    digests_with(database, old_files)
    damage(database)
    for _ in range(2):  # The first run may find the damage only when it reads or writes rows.
        assert digests_with(database, old_files) == old_files
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert digests_with(database, old_files) == old_files


# Facts

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(one=st.dictionaries(st.text("ab", min_size=1, max_size=2), TREES, max_size=3), other=TREES)
def test_settings_that_differ_are_told(one: dict[str, object], other: object) -> None:
    """Law: nothing is lost when tables are flattened, so that no difference is."""
    changed = {**one, "ab": other}
    was, now = (Facts(settings=flattened(tree), versions={}) for tree in (one, changed))
    same = _typed(one) == _typed(changed)
    assert (was.digest == now.digest) == same
    assert (list(differences(was, now, "cpu")) == []) == same


def _typed(tree: object) -> object:
    """So that 1 is not True."""
    if isinstance(tree, dict):
        return {key: _typed(value) for key, value in tree.items()}
    return [_typed(item) for item in tree] if isinstance(tree, list) else (type(tree), tree)


def test_a_difference_names_key_and_values() -> None:
    was = Facts(settings={"targets.this.memory.planner": "best", "gone": 1}, versions={"torch": "2.12"})
    now = Facts(settings={"targets.this.memory.planner": "naive"}, versions={"torch": "2.13"})
    assert [item.message for item in differences(was, now, "cpu")] == [
        "gone is not set, and was 1",
        'targets.cpu.memory.planner is "naive", and was "best"',
        'torch is "2.13", and was "2.12"',
    ]


@pytest.mark.parametrize(
    ("config", "lock"),
    [
        ("etdev.toml", "etdev.lock"),
        ("etdev.yaml", "etdev.lock"),
        ("pyproject.toml", "etdev.lock"),
        ("board.toml", "board.lock"),
        ("board.rev-2.yml", "board.rev-2.lock"),
    ],
)
def test_each_config_has_a_lock_of_its_own(config: str, lock: str, tmp_path: Path) -> None:
    """Writing it adds no name to the folder, for a model whose code lists the folder."""
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    loaded = replace(project.loaded, path=tmp_path / config)
    (tmp_path / config).touch()
    before = digest_of_names(tmp_path, project.out)
    place = replace(project, loaded=loaded).lock
    assert place == tmp_path / lock
    place.touch()
    assert digest_of_names(tmp_path, project.out) == before
    (tmp_path / "other.lock").touch()
    assert digest_of_names(tmp_path, project.out) != before


@pytest.mark.parametrize("out", ["out", "out/board"])
def test_output_folders_add_no_name_to_the_folder_around_them(out: str, tmp_path: Path) -> None:
    """The config's own output folder from the start, and those of other configs once they have results."""
    folder = tmp_path / "project"
    folder.mkdir()
    project = make_project(
        folder, LINEAR_CONFIG.replace("name =", f"out = '{out}'\n    name =", 1) + "\n[targets.cpu]\n"
    )
    before = digest_of_names(folder, project.out)
    project.out.mkdir(parents=True)
    other = folder / "other"
    other.mkdir()
    (other / "m.pte").touch()
    result = write_report(other / "m.pte")
    (other / "results.json").write_text(result.model_dump_json(), encoding="utf-8")
    assert digest_of_names(folder, project.out) == before == digest_of_names(folder / "../project", project.out)
    (other / "results.json").write_text("{}")
    assert digest_of_names(folder, project.out) != before


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            {"stated": []},
            {"stated": ["model.share_state"]},
            ["the config sets model.share_state, and did not before"],
        ),
        ({"stated": ["a"]}, {"stated": []}, ["the config does not set a, and did before"]),
        (
            {"forms": ["linear", "permute"]},
            {"forms": ["permute"]},
            ["the lowering cannot use the form `linear`, and could before"],
        ),
        ({"forms": []}, {"forms": ["linear"]}, ["the lowering can use the form `linear`, and could not before"]),
        (
            {"run": {"require": ["native"]}},
            {"run": {"require": ["replay", "native"]}},
            ["the check `replay` is required, and was not before"],
        ),
        (
            {"run": {"require": ["native", "replay"]}},
            {"run": {"require": ["replay", "native"]}},
            ["the required checks are in another order"],
        ),
        (
            {"run": {"verify": True}},
            {"run": {"verify": False}},
            ["verification (off with --no-verify) is false, and was true"],
        ),
        (
            {"run": {"device map": {}}},
            {"run": {"device map": {"cuda:0": "sim"}}},
            ['the place of cuda:0 in --device-map is "sim", and was not set'],
        ),
        ({"run": {"baseline": "ab"}}, {"run": {"baseline": "cd"}}, ["the baseline has changed"]),
        (
            {"run": {"native libraries": {"a.so": "1"}}},
            {"run": {"native libraries": {"a.so": "2"}}},
            ["the native library a.so has changed"],
        ),
        (
            {"run": {"baseline": None, "native libraries": {}}},
            {"run": {"baseline": "ab", "native libraries": {"a.so": "1"}}},
            [
                "the baseline is compared now, and was not before",
                "the native library a.so is used now, and was not before",
            ],
        ),
        (
            {"run": {"baseline": "ab", "native libraries": {"a.so": "1", "b.so": "2"}}},
            {"run": {"baseline": None, "native libraries": {"b.so": "2"}}},
            [
                "the baseline is not compared now, and was before",
                "the native library a.so is not used now, and was before",
            ],
        ),
        (
            {"bases": {"model.entry": "."}},
            {"bases": {"model.entry": ".."}},
            ['the folder of the modules in model.entry is "..", and was "."'],
        ),
        (
            {"banks": {"room": 4, "elide": {"views": True}}},
            {"banks": {"room": 8, "elide": {"views": False}}},
            [
                "targets.cpu.elide.views is false, and was true",
                "the size of all memory banks together is 8, and was 4",
            ],
        ),
        (
            {"targets": {"this": {"partitioners": []}}},
            {"targets": {"this": {"partitioners": [{"backend": "xnnpack"}]}}},
            ['targets.cpu.partitioners[0].backend is "xnnpack", and was not set'],
        ),
        ({"version": 1}, {"version": 1, "methods": {}}, ["methods is empty, and was not set"]),
        ({"version": 1, "methods": {}}, {"version": 1}, ["methods is not set, and was empty"]),
    ],
)
def test_facts_that_are_not_keys_are_told_in_words(
    was: dict[str, object], now: dict[str, object], told: list[str]
) -> None:
    before, after = (Facts(settings=flattened(tree), versions={}) for tree in (was, now))
    assert [item.message for item in differences(before, after, "cpu")] == told


def test_outputs_that_cannot_be_kept_fail_no_build(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on a machine whose folder for temporary files is full or missing."""
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    with Cache(store) as cache:
        cache.keep_reference(project, "cpu", FACTS, Reads(), b"outputs")
        assert (cache.reference(project, "cpu", FACTS, Reads()), cache.obstacle) == (b"outputs", None)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        cache.keep_reference(project, "cpu", FACTS, Reads(), b"others")
        assert "No such file" in str(cache.obstacle)
        assert cache.reference(project, "cpu", FACTS, Reads()) == b"outputs"


def test_what_was_stored_is_not_read_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr("etdev.pipeline.cache.store.file_sha256", lambda path: read.append(path) or file_sha256(path))
    path = tmp_path / "made"
    path.write_bytes(b"content")
    store.keep(path, output(b"content"))
    store.keep(path, output(b"content"))
    assert read == []
    other = Store(store.folder, 1000)
    other.keep(path, output(b"content"))
    other.keep(path, output(b"content"))
    assert len(read) == 1


def test_what_was_removed_since_it_was_stored_is_stored_again(store: Store, tmp_path: Path) -> None:
    entry = add(store, tmp_path, b"content")
    store.collect(0)
    assert store.read(entry.outputs["made"]) is None
    add(store, tmp_path, b"content")
    assert store.read(entry.outputs["made"]) == b"content"


def test_a_folder_that_may_not_be_entered_counts_as_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reproducer: such a folder in a listed folder raised `PermissionError`. A test as root must refuse by itself."""
    stat, empty = os.stat, digest_of_names(tmp_path, tmp_path / "out")

    def refusing(path: str | Path, **how: bool) -> os.stat_result:
        if Path(path).parent.name in ("closed", "link"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **how)

    (tmp_path / "closed").mkdir()
    (tmp_path / "link").symlink_to("closed")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refusing)
        found = digest_of_names(tmp_path, tmp_path / "out")
    assert found == digest_of_names(tmp_path, tmp_path / "out") != empty
