"""E5: what can be wrong with folders, buckets and devices before anything is sent there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etdev.config.destinations import Destination
from etdev.deployment.transports import Connection, open_transport
from etdev.errors import DeployError, MissingRequirementError


class TestFolder:
    def test_a_file_on_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        reach = Connection(Destination("file", str(tmp_path / "file" / "below")), tmp_path)
        with open_transport(reach) as transport:
            with pytest.raises(DeployError, match="a part of the path is a file"):
                transport.check()
            with pytest.raises(DeployError, match="a part of the path is a file"):
                transport.write("a", b"x")

    @pytest.mark.skipif(os.geteuid() == 0, reason="a superuser may write anywhere")
    def test_a_folder_that_is_locked(self, tmp_path: Path) -> None:
        (tmp_path / "locked").mkdir(mode=0o555)
        with open_transport(Connection(Destination("file", str(tmp_path / "locked" / "x")), tmp_path)) as transport:
            with pytest.raises(DeployError, match="permission denied"):
                transport.check()
            with pytest.raises(DeployError, match="permission denied"):
                transport.write("a", b"x")


class TestBucket:
    def _reach(self, server: str, bucket: str = "nobodys") -> Connection:
        return Connection(Destination("s3", "x", bucket), Path("/"), endpoint_url=server)

    def test_a_bucket_that_is_not_there(self, s3_server: str, aws: None) -> None:
        with open_transport(self._reach(s3_server)) as transport:
            with pytest.raises(DeployError, match="the service refused"):
                transport.check()
            with pytest.raises(DeployError, match="the service refused the operation: NoSuchBucket"):
                transport.names("")

    def test_no_credentials(self, s3_server: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with (
            open_transport(self._reach(s3_server)) as transport,
            pytest.raises(DeployError, match="no credentials for S3") as caught,
        ):
            transport.check()
        assert "AWS_PROFILE" in str(caught.value.hint)

    def test_a_profile_that_is_not_there(self, s3_server: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        with (
            pytest.raises(DeployError, match="the connection to S3 cannot be set up"),
            open_transport(self._reach(s3_server)),
        ):
            pass

    def test_nobody_listens(self, aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("boto3")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with (
            open_transport(self._reach("http://127.0.0.1:1")) as transport,
            pytest.raises(DeployError, match="Could not connect"),
        ):
            transport.check()


class TestDevice:
    REACH = Connection(Destination("adb", "/data/local/tmp/models"), Path("/"))

    def test_no_adb(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingRequirementError, match="needs the program `adb`"), open_transport(self.REACH):
            pass

    def test_no_device(self, adb: Path) -> None:
        adb.write_text('#!/bin/sh\necho "error: no devices/emulators found" >&2\nexit 1\n')
        with (
            pytest.raises(DeployError, match="no device responds: error: no devices/emulators found"),
            open_transport(self.REACH),
        ):
            pass

    def test_a_device_whose_mv_knows_no_t(self, adb: Path, tmp_path: Path) -> None:
        """The pointer moves all the same."""
        old = 'mv() { case "$1" in -*T*) return 1 ;; esac; command mv "$@"; }; '
        adb.write_text(adb.read_text().replace('sh -c "$2"', f"sh -c '{old}'\"$2\""))
        with open_transport(Connection(Destination("adb", str(tmp_path / "there")), Path("/"))) as transport:
            for name in "ab":
                transport.write(f"releases/{name}/manifest.json", b"{}")
                transport.switch(f"releases/{name}", ".t")
                assert transport.current() == f"releases/{name}"
            assert transport.names("") == ["current", "releases"]

    def test_a_push_that_fails(self, adb: Path, tmp_path: Path) -> None:
        adb.write_text(adb.read_text().replace('exec cp "$2" "$3"', 'echo "no space left" >&2; exit 1'))
        (tmp_path / "file").write_bytes(b"x")
        with (
            open_transport(Connection(Destination("adb", str(tmp_path / "there")), Path("/"))) as transport,
            pytest.raises(DeployError, match="`adb push` failed: no space left"),
        ):
            transport.upload("a", tmp_path / "file")
