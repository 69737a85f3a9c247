"""E1, E5: where targets are deployed to: URIs, options that fit their schemes, and no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems, said
from etdev.config.describe.explain import explain
from etdev.config.describe.show import show_json, show_text, show_toml
from etdev.config.destinations import Destination, DestinationError, parse_destination

VALID = {
    "file:///srv/models": (Destination("file", "/srv/models"), "file:/srv/models"),
    "file:out/served": (Destination("file", "out/served"), "file:out/served"),
    "file:../beside": (Destination("file", "../beside"), "file:../beside"),
    "FILE://localhost/a%20b": (Destination("file", "/a b"), "file:/a b"),
    "sftp://board/srv/models": (Destination("sftp", "/srv/models", "board"), "sftp://board/srv/models"),
    "sftp://me@board:2222/m": (Destination("sftp", "/m", "board", "me", 2222), "sftp://me@board:2222/m"),
    "sftp://[::1]:22/m": (Destination("sftp", "/m", "::1", None, 22), "sftp://[::1]:22/m"),
    "s3://models/boards/a/": (Destination("s3", "boards/a", "models"), "s3://models/boards/a"),
    "s3://models": (Destination("s3", "", "models"), "s3://models/"),
    "adb:/data/local/tmp/m": (Destination("adb", "/data/local/tmp/m"), "adb:/data/local/tmp/m"),
    "adb://emulator-5554/data/m": (Destination("adb", "/data/m", "emulator-5554"), "adb://emulator-5554/data/m"),
    "adb://10.0.0.7:5555/data/m": (Destination("adb", "/data/m", "10.0.0.7:5555"), "adb://10.0.0.7:5555/data/m"),
}
INVALID = {
    "models": "has no scheme that etdev supports",
    "ftp://host/x": "has no scheme that etdev supports",
    "file:": "does not have a folder",
    "file:///": "does not have a folder",
    "file://host/x": "the URI has a host",
    "sftp:///x": "does not have a host",
    "sftp://host": "does not have a folder",
    "sftp://host/": "does not have a folder",
    "sftp://host:port/x": "does not have a valid host and port",
    "sftp://host:65536/x": "does not have a valid host and port",
    "sftp://host/a/../b": "the path of the URI contains `..`",
    "sftp://host/x?y=z": "has a query or a fragment",
    "sftp://host/x#y": "has a query or a fragment",
    "s3://": "does not have a valid bucket name",
    "s3://Models/x": "does not have a valid bucket name",
    "s3://models/a//b": "has an empty part",
    "adb:data/x": "does not have an absolute path on the device",
    "adb:": "does not have an absolute path on the device",
    "sftp://host/a%0ab": "has characters that cannot be printed",
    "sftp://host/a\nb": "has invalid characters",
}


@pytest.mark.parametrize("uri", VALID)
def test_a_destination(uri: str) -> None:
    found, shown = VALID[uri]
    assert parse_destination(uri) == found
    assert str(found) == shown
    assert parse_destination(shown.replace(" ", "%20")) == found


@pytest.mark.parametrize("uri", INVALID)
def test_no_destination(uri: str) -> None:
    with pytest.raises(DestinationError, match=INVALID[uri]):
        parse_destination(uri)


def deployment(lines: str) -> str:
    """A config with a deployment of these lines, which begin at line 8."""
    return f"{MINIMAL}[deploy.board]\n{lines}"


def test_a_config_with_every_scheme(tmp_path: Path) -> None:
    text = deployment(
        'target = "cpu"\nuri = "sftp://h/x"\nknown_hosts = "hosts"\npassword_env = "P"\nsmoke = ["true"]\n'
    )
    text += '[deploy.cloud]\ntarget = "cpu"\nuri = "s3://models"\nendpoint_url = "https://minio:9000"\nkeep = 1\n'
    text += '[deploy.phone]\ntarget = "cpu"\nuri = "adb:/data/m"\nsmoke = ["sh", "-c", "true"]\n'
    text += '[deploy.here]\ntarget = "cpu"\nuri = "file:x"\nsmoke = ["true"]\n'
    loaded = load(tmp_path, text)
    assert loaded.config.deploy["cloud"].keep == 1
    assert loaded.config.deploy["here"].keep == 3


WRONG = {
    "no such target": ('target = "cpuu"\nuri = "file:x"\n', "8:10", '"cpuu", which is not a target'),
    "scheme": (
        'target = "cpu"\nuri = "ftp://h/x"\n',
        "9:7",
        "`deploy.board.uri`: the URI has no scheme that etdev supports",
    ),
    "hosts of a folder": (
        'target = "cpu"\nuri = "file:x"\nknown_hosts = "h"\n',
        "10:15",
        "`deploy.board.known_hosts` has no effect for file:",
    ),
    "password of a bucket": (
        'target = "cpu"\nuri = "s3://models"\npassword_env = "P"\n',
        "10:16",
        "`deploy.board.password_env` has no effect for s3:",
    ),
    "endpoint of a host": (
        'target = "cpu"\nuri = "sftp://h/x"\nendpoint_url = "https://h"\n',
        "10:16",
        "`deploy.board.endpoint_url` has no effect for sftp:",
    ),
    "smoke in a bucket": (
        'target = "cpu"\nuri = "s3://models"\nsmoke = ["true"]\n',
        "10:9",
        "`deploy.board.smoke`: commands cannot run at s3:",
    ),
    "endpoint that is no URL": (
        'target = "cpu"\nuri = "s3://models"\nendpoint_url = "minio:9000"\n',
        "10:16",
        "`deploy.board.endpoint_url` is not the URL of a service",
    ),
    "nothing kept": ('target = "cpu"\nuri = "file:x"\nkeep = 0\n', "10:8", "`deploy.board.keep` is 0"),
    "variable": (
        'target = "cpu"\nuri = "sftp://h/x"\npassword_env = "two words"\n',
        "10:16",
        "expected the name of an environment variable",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_mistake_at_its_place(case: str, tmp_path: Path) -> None:
    text, place, message = WRONG[case]
    (problem,) = problems(tmp_path, deployment(text))
    assert problem.where == f"etdev.toml:{place}"
    assert message in problem.message
    assert problem.hint is not None or case in ("nothing kept", "variable")


SECRET = "s3cr3t"
SECRETS = [
    f"sftp://me:{SECRET}@host/x",
    f"sftp://:{SECRET}@host/x",
    f"sftp://me:{SECRET}@host:99999/x",
    f"s3://AKIA:{SECRET}@models/x",
    f"ftp://me:{SECRET}@host/x",
    f"file://me:{SECRET}@localhost/x",
    f"sftp://host/x?password={SECRET}",
]


@pytest.mark.parametrize("uri", SECRETS)
def test_a_secret_is_refused_and_repeated_nowhere(uri: str, tmp_path: Path) -> None:
    for text in (f'uri = "{uri}"', f'uri = ["{uri}"]', f'uri = {{ at = "{uri}" }}'):
        answer = said(tmp_path, deployment(f'target = "cpu"\n{text}\n'))
        assert "deploy.board.uri" in answer
        assert SECRET not in answer


def test_a_secret_on_the_command_line_is_repeated_nowhere(tmp_path: Path) -> None:
    text = deployment('target = "cpu"\nuri = "file:x"\n')
    for value in (SECRETS[0], f'["{SECRETS[0]}"]'):
        answer = said(tmp_path, text, "etdev.toml", f"deploy.board.uri={value}")
        assert "contains a password" in answer or "is a list" in answer
        assert SECRET not in answer


def test_the_variable_of_a_password_is_shown_and_never_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOARD_PASSWORD", SECRET)
    loaded = load(tmp_path, deployment('target = "cpu"\nuri = "sftp://h/x"\npassword_env = "BOARD_PASSWORD"\n'))
    shown = [show(loaded) for show in (show_text, show_toml, show_json)]
    shown.append(explain("deploy.board.password_env", loaded))
    for text in shown:
        assert "BOARD_PASSWORD" in text
        assert SECRET not in text
