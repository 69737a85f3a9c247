"""Targets of every kind: a folder, two SFTP servers, an S3 server, a stand-in for ``adb``, all on this machine."""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deployment.places import Bucket, Folder, Maker, Target
from deployment.sftp_server import SftpServer

KINDS = ("file", "openssh", "asyncssh", "s3", "adb")
SHELLS = ("file", "openssh", "asyncssh", "adb")


def _slow(kinds: Iterable[str], *quick: str) -> list[Any]:
    """Return the kinds as parameters: ``quick`` ones, and others as slow. The server of S3 is an integration test."""
    marks = {kind: [pytest.mark.slow] for kind in kinds if kind not in quick}
    marks.setdefault("s3", [pytest.mark.integration])
    return [pytest.param(kind, marks=marks.get(kind, [])) for kind in kinds]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Makes releases."""
    folder = tmp_path / "sources"
    folder.mkdir()
    return Maker(folder)


@pytest.fixture
def home(ssh_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with keys of its own, and no agent."""
    monkeypatch.setenv("HOME", str(ssh_home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ssh_home


@pytest.fixture(params=_slow(KINDS, *KINDS))
def any_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target of each kind."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture(params=_slow(KINDS, "file", "asyncssh"))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target; quick ones, and with ``--slow`` all. Each request to S3's server takes some time."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture(params=_slow(KINDS, "file", "asyncssh", "s3"))
def usual_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target; of each transport a quick one, and with ``--slow`` all."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture(params=_slow(KINDS, "file"))
def tried_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target for tests that deploy dozens of times: a folder, and with ``--slow`` all."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture(params=SHELLS)
def any_shell_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target of each kind that can run commands."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture(params=_slow(SHELLS, "file", "asyncssh"))
def shell_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target that can run commands; quick ones, and with ``--slow`` all."""
    return make_target(request.param, request, tmp_path)


@pytest.fixture
def s3_target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty prefix of a bucket."""
    return make_target("s3", request, tmp_path)


def make_target(kind: str, request: pytest.FixtureRequest, folder: Path) -> Target:
    """An empty target; skips where what it needs is missing."""
    root = folder / "there" / "models"
    match kind:
        case "file":
            return Target(kind, Folder(root), root.as_uri())
        case "adb":
            request.getfixturevalue("adb")
            return Target(kind, Folder(root), f"adb://emulator-5554{root}")
        case "s3":
            bucket: Bucket = request.getfixturevalue("bucket")
            request.getfixturevalue("aws")
            endpoint = request.getfixturevalue("s3_server")
            return Target(kind, bucket, f"s3://{bucket.name}/{bucket.prefix}", {"endpoint_url": endpoint})
    home: Path = request.getfixturevalue("home")
    port: int = request.getfixturevalue(f"{kind}_port")
    user = getpass.getuser()
    known = {"known_hosts": home / ".ssh" / "known_hosts"}
    return Target(kind, Folder(root), f"sftp://{user}@127.0.0.1:{port}{root}", known)


@pytest.fixture(scope="session")
def ssh_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with a user's key, a host's key, and the host's in ``known_hosts``."""
    if find_spec("asyncssh") is None:
        pytest.skip("needs the package asyncssh")
    import asyncssh

    home = tmp_path_factory.mktemp("home")
    folder = home / ".ssh"
    folder.mkdir(mode=0o700)
    for name in ("id_ed25519", "host_key", "other_key"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / name)
        (folder / name).chmod(0o600)
        key.write_public_key(folder / f"{name}.pub")
    shutil.copy(folder / "id_ed25519.pub", folder / "authorized_keys")
    return home


def _trust(home: Path, port: int) -> None:
    key = (home / ".ssh" / "host_key.pub").read_text()
    with (home / ".ssh" / "known_hosts").open("a") as file:
        file.write(f"[127.0.0.1]:{port} {key}")


@pytest.fixture(scope="session")
def asyncssh_server(ssh_home: Path) -> Iterator[SftpServer]:
    """The SFTP server of the client's own library."""
    with SftpServer(ssh_home / ".ssh") as server:
        _trust(ssh_home, server.port)
        yield server


@pytest.fixture(scope="session")
def asyncssh_port(asyncssh_server: SftpServer) -> int:
    """Where it listens."""
    return asyncssh_server.port


@pytest.fixture(scope="session")
def openssh_port(ssh_home: Path) -> Iterator[int]:
    """Where a real OpenSSH server listens, which runs as the present user."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if program is None:
        pytest.skip("needs an OpenSSH server (sshd)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of a superuser wants it.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": ssh_home / ".ssh" / "host_key",
        "AuthorizedKeysFile": ssh_home / ".ssh" / "authorized_keys",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "PasswordAuthentication": "no",
        "MaxStartups": 100,
        "Subsystem": "sftp internal-sftp",
    }
    config = ssh_home / "sshd_config"
    config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    log = ssh_home / "sshd.log"  # Not a pipe: one that nobody reads fills, and then the server stands still.
    command = [program, "-D", "-E", str(log), "-f", str(config)]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as server:
        try:
            if not _answers(port):
                server.kill()
                pytest.skip(f"sshd does not run here: {log.read_text(errors='replace')[-300:]}")
            _trust(ssh_home, port)
            yield port
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    for _ in range(50):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in the environment, and nothing of this machine's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """URL of an S3 server on this machine."""
    for package in ("boto3", "moto", "flask", "flask_cors"):
        if find_spec(package) is None:
            pytest.skip(f"needs the package {package}")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # A line for each request.
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str) -> Bucket:
    """A bucket of the test's own: the server looks at all objects of a bucket to list a few."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3_server,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="hush-hush",
    )
    name = f"models-{secrets.token_hex(8)}"
    client.create_bucket(Bucket=name)
    return Bucket(client, name, "boards/a")


ADB = """\
#!/bin/sh
# The adb of a device whose files are this machine's.
if [ "$1" = -s ]; then shift 2; fi
case $1 in
  get-state) echo device ;;
  shell) exec sh -c "$2" ;;
  push) exec cp "$2" "$3" ;;
  *) echo "unknown command $1" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program ``adb`` on the PATH that runs here what it is to run on a device."""
    program = tmp_path / "bin" / "adb"
    program.parent.mkdir()
    program.write_text(ADB)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program
