"""E5: names at a target, and manifests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployment.places import manifest_of
from etdev.deployment.manifest import ManifestError, ReleasedFile, digest_of, parse_manifest
from etdev.deployment.names import (
    content_digest,
    in_making,
    is_release,
    leftover,
    release_name,
    release_time,
    temporary_for,
)

MOMENTS = st.integers(0, 2**55).map(
    lambda microseconds: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(0, 0, microseconds)
)
DIGEST = "0123456789ab"
FILE = ReleasedFile(name="net.pte", size=3, sha256="0" * 64)


@given(MOMENTS)
def test_a_name_says_when(moment: datetime) -> None:
    name = release_name(moment, DIGEST)
    assert is_release(name)
    assert (release_time(name), content_digest(name)) == (moment, DIGEST)


@given(MOMENTS, MOMENTS)
def test_names_sort_by_time(one: datetime, other: datetime) -> None:
    assert (release_name(one, DIGEST) < release_name(other, DIGEST)) == (one < other)


@given(st.text())
def test_no_other_name_is_a_release_or_a_leftover(text: str) -> None:
    assert not is_release(text)
    assert leftover(text, datetime.now(UTC)) is None
    assert in_making(text) is None


def test_temporary_names_are_never_used_twice() -> None:
    release = release_name(datetime.now(UTC), DIGEST)
    names = {temporary_for(release).folder for _ in range(100)}
    assert len(names) == 100
    assert {in_making(name) for name in names} == {release}


def test_a_pointer_is_told_from_a_folder() -> None:
    """Removing what lies in it would follow it."""
    temporary = temporary_for(release_name(datetime.now(UTC), DIGEST))
    found = [leftover(name, datetime.now(UTC)) for name in (temporary.folder, temporary.pointer)]
    assert [item.is_pointer for item in found if item] == [False, True]


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = manifest_of((FILE,))
    assert parse_manifest(manifest.to_bytes()) == manifest
    assert digest_of(manifest.to_bytes()) == digest_of(manifest_of((FILE,)).to_bytes())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 2', "format: "),
        ('"net.pte",\n      "size"', '"../net.pte",\n      "size"', "files.0.name: "),
        ('"size": 3', '"size": -3', "files.0.size: "),
        ('"size": 3', '"size": 3, "mode": 1', "files.0.mode: "),
        ('"0000', '"ZZZZ', "files.0.sha256: "),
        ("{", "", ""),
    ],
)
def test_a_manifest_that_is_none(old: str, new: str, said: str) -> None:
    content = manifest_of((FILE,)).to_bytes().decode()
    assert old in content
    with pytest.raises(ManifestError) as caught:
        parse_manifest(content.replace(old, new, 1).encode())
    assert str(caught.value).startswith(said)
