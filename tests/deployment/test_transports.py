"""E5: what the algorithm asks of every transport, on real targets."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from deployment.places import Target
from etdev.deployment.transports.base import PIECE
from etdev.errors import DeployError

CONTENT = b"\0\r\n'\"$HOME\\\xff" * 7


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "it's a file.bin"
    path.write_bytes(CONTENT)
    return path


def test_an_empty_target_has_nothing(any_target: Target) -> None:
    with any_target.open() as transport:
        transport.check()
        assert transport.names("") == transport.names("releases") == []
        assert transport.read("a/b") is transport.fingerprint("a/b") is transport.current() is None
        transport.remove("a")
    assert any_target.place.files() == {}


def test_files_lie_there_as_they_were_sent(any_target: Target, source: Path) -> None:
    with any_target.open() as transport:
        transport.upload("a/b.bin", source)
        transport.write("a/c.json", b'{"it\'s": "$HOME"}\n')
        transport.write("a/empty", b"")
        assert any_target.place.files() == {"a/b.bin": CONTENT, "a/c.json": b'{"it\'s": "$HOME"}\n', "a/empty": b""}
        assert transport.names("") == ["a"]
        assert transport.names("a") == ["b.bin", "c.json", "empty"]
        assert transport.read("a/b.bin") == CONTENT
        assert transport.read("a/empty") == b""
        found = transport.fingerprint("a/b.bin")
    assert found is not None
    assert (found.size, found.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.sampled(3)
def test_a_file_of_several_pieces(any_target: Target, tmp_path: Path) -> None:
    large = bytes(range(256)) * (PIECE // 256) * 2 + b"end"
    (tmp_path / "large").write_bytes(large)
    with any_target.open() as transport:
        transport.upload("a/large", tmp_path / "large")
        found = transport.fingerprint("a/large")
    assert found is not None
    assert (found.size, found.sha256) == (len(large), hashlib.sha256(large).hexdigest())
    assert any_target.place.files()["a/large"] == large


def test_a_fingerprint_is_of_what_lies_there_now(any_target: Target, source: Path) -> None:
    with any_target.open() as transport:
        transport.upload("a/b.bin", source)
        any_target.place.put("a/b.bin", b"other")
        found = transport.fingerprint("a/b.bin")
    assert found is not None
    assert found.sha256 == hashlib.sha256(b"other").hexdigest()


def test_a_folder_takes_another_name(any_target: Target, source: Path) -> None:
    with any_target.open() as transport:
        transport.upload(".x/b.bin", source)
        transport.write(".x/manifest.json", b"{}")
        transport.rename(".x", "releases/y", "manifest.json")
        assert transport.names("") == ["releases"]
    assert any_target.place.files() == {"releases/y/b.bin": CONTENT, "releases/y/manifest.json": b"{}"}


def test_a_folder_that_is_gone_takes_no_other_name(any_target: Target) -> None:
    with any_target.open() as transport:
        with pytest.raises(DeployError):
            transport.rename(".x", "releases/y", "manifest.json")
        assert transport.read("releases/y/manifest.json") is None


def test_removing(any_target: Target, source: Path) -> None:
    with any_target.open() as transport:
        for path in ("a/b", "a/c/d", "ab/c"):
            transport.upload(path, source)
        transport.remove("a/b")
        assert set(any_target.place.files()) == {"a/c/d", "ab/c"}
        transport.remove("a")
        assert set(any_target.place.files()) == {"ab/c"}
        transport.remove("a")


def test_removing_a_pointer_keeps_what_it_points_at(any_target: Target) -> None:
    with any_target.open() as transport:
        transport.write("releases/x/manifest.json", b"{}")
        transport.switch("releases/x", ".t")
        transport.remove("current")
        transport.remove("current.json")
        assert transport.current() is None
    assert any_target.place.files() == {"releases/x/manifest.json": b"{}"}


def test_the_pointer(any_target: Target) -> None:
    with any_target.open() as transport:
        for name in "xyx":
            transport.write(f"releases/{name}/manifest.json", b"{}")
            transport.switch(f"releases/{name}", ".t")
            assert transport.current() == f"releases/{name}"
            assert any_target.place.pointer() == f"releases/{name}"
            assert ".t" not in transport.names("")


@pytest.mark.sampled(3)
def test_whoever_reads_the_pointer_always_finds_one(any_target: Target) -> None:
    seen: set[str | None] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(any_target.place.pointer())

    with any_target.open() as transport:
        transport.write("releases/x/manifest.json", b"{}")
        transport.switch("releases/x", ".t")
        reader = threading.Thread(target=look)
        reader.start()
        for turn in range(40):
            transport.switch(f"releases/{'xy'[turn % 2]}", ".t")
        done.set()
        reader.join()
    assert seen == {"releases/x", "releases/y"}


def test_another_connection_sees_the_same(any_target: Target, source: Path) -> None:
    with any_target.open() as transport, any_target.open() as other:
        transport.upload("a/b", source)
        assert other.read("a/b") == CONTENT
        transport.switch("releases/x", ".t")
        assert other.current() == "releases/x"


def test_commands_run_there(any_shell_target: Target) -> None:
    script = 'printf "%s|" "$ETDEV_RELEASE" "$@"; echo to stderr >&2; exit 7'
    with any_shell_target.open() as transport:
        ran = transport.run(["sh", "-c", script, "sh", "it's", "$x"], {"ETDEV_RELEASE": "/a b/c"})
    assert ran.code == 7
    assert ran.output.startswith("/a b/c|it's|$x|")
    assert ran.output.endswith("to stderr")


def test_a_location_is_where_it_lies(any_shell_target: Target) -> None:
    with any_shell_target.open() as transport:
        transport.write("a/b", b"x")
        assert Path(transport.location("a/b")).read_bytes() == b"x"


def test_a_file_where_the_pointer_should_be(any_target: Target) -> None:
    any_target.place.put("current", b"mine")
    any_target.place.put("current.json", b"mine")
    with any_target.open() as transport:
        if any_target.kind == "s3":
            assert transport.current() == ""
        else:
            with pytest.raises(DeployError, match="not a pointer of etdev"):
                transport.current()
