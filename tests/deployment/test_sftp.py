"""E5: who is trusted over SSH, and what a server has to be able to do."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from deployment.places import Folder, Maker, Target
from deployment.sftp_server import PASSWORD, SftpServer
from etdev.config.destinations import Destination
from etdev.deployment.transports import Connection, open_transport
from etdev.deployment.transports.base import Transport
from etdev.errors import DeployError


@pytest.fixture
def server(asyncssh_server: SftpServer, home: Path) -> SftpServer:
    return asyncssh_server


def _reach(port: int, folder: Path, known_hosts: Path | None = None, password_env: str | None = None) -> Transport:
    destination = Destination("sftp", str(folder), "127.0.0.1", getpass.getuser(), port)
    return open_transport(Connection(destination, Path("/"), known_hosts, password_env))


def _refusal(transport: Transport) -> DeployError:
    with pytest.raises(DeployError) as caught, transport:
        pass
    return caught.value


def _known(path: Path, port: int, key: Path) -> Path:
    path.write_text(f"[127.0.0.1]:{port} {key.read_text()}")
    return path


def test_the_file_of_the_user_is_the_default(server: SftpServer, home: Path, tmp_path: Path) -> None:
    with _reach(server.port, tmp_path) as transport:
        assert transport.names("") == []


def test_a_host_that_is_not_known(server: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    error = _refusal(_reach(server.port, tmp_path, tmp_path / "known"))
    assert "the host key is not known" in error.message
    assert error.hint is not None
    assert f"ssh-keyscan -p {server.port} 127.0.0.1" in error.hint
    assert str(tmp_path / "known") in error.hint


def test_a_host_with_another_key(server: SftpServer, home: Path, tmp_path: Path) -> None:
    known = _known(tmp_path / "known", server.port, home / ".ssh" / "other_key.pub")
    assert "the host key is not known" in _refusal(_reach(server.port, tmp_path, known)).message


def test_a_file_of_hosts_that_is_not_there(server: SftpServer, tmp_path: Path) -> None:
    error = _refusal(_reach(server.port, tmp_path, tmp_path / "none"))
    assert "with the trusted host keys does not exist" in error.message
    assert "ssh-keyscan" in str(error.hint)


def test_settings_of_ssh_do_not_switch_the_check_off(server: SftpServer, home: Path, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    config = home / ".ssh" / "config"
    config.write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile none\n")
    try:
        assert "is not known" in _refusal(_reach(server.port, tmp_path, tmp_path / "known")).message
    finally:
        config.unlink()


def test_a_user_whom_the_server_does_not_know(
    server: SftpServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = home / ".ssh" / "known_hosts"
    monkeypatch.setenv("HOME", str(tmp_path))
    error = _refusal(_reach(server.port, tmp_path, known))
    assert "the server refused the login" in error.message
    assert "password_env" in str(error.hint)


def test_a_password_out_of_the_environment(
    home: Path, tmp_path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / ".ssh"
    with SftpServer(folder, password=True) as server:
        known = _known(tmp_path / "known", server.port, folder / "host_key.pub")
        monkeypatch.setenv("BOARD_PASSWORD", PASSWORD)
        with _reach(server.port, tmp_path / "there", known, "BOARD_PASSWORD") as transport:
            transport.write("a", b"x")
            assert PASSWORD not in repr(transport) + repr(vars(transport))
        monkeypatch.setenv("BOARD_PASSWORD", "a wrong one")
        error = _refusal(_reach(server.port, tmp_path / "there", known, "BOARD_PASSWORD"))
    assert "the server refused the login" in error.message
    assert "wrong one" not in str(error)


def test_a_server_without_posix_rename(home: Path, tmp_path: Path) -> None:
    folder = home / ".ssh"
    with SftpServer(folder, posix_rename=False) as server:
        known = _known(tmp_path / "known", server.port, folder / "host_key.pub")
        error = _refusal(_reach(server.port, tmp_path, known))
    assert "lacks posix-rename@openssh.com" in error.message
    assert error.hint == "use OpenSSH's sftp-server on that machine"


def test_nobody_listens(home: Path, tmp_path: Path) -> None:
    error = _refusal(_reach(1, tmp_path, home / ".ssh" / "known_hosts"))
    assert "the connection failed" in error.message
    assert error.where is not None


def test_a_server_that_goes_away(home: Path, tmp_path: Path) -> None:
    folder = home / ".ssh"
    with SftpServer(folder) as server:
        known = _known(tmp_path / "known", server.port, folder / "host_key.pub")
        target = Target(
            "asyncssh", Folder(tmp_path), f"sftp://127.0.0.1:{server.port}{tmp_path}", {"known_hosts": known}
        )
        with target.open() as transport:
            assert transport.read("known") is not None
            server.hang_up()
            with pytest.raises(DeployError):
                transport.read("known")


def test_a_folder_that_nobody_may_write_to(server: SftpServer, tmp_path: Path) -> None:
    place = tmp_path / "locked"
    place.mkdir(mode=0o555)
    with _reach(server.port, place / "below") as transport, pytest.raises(DeployError, match="refused"):
        transport.check()
