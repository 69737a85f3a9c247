"""E5: releases on real targets of every kind: published, switched to, kept, removed, rolled back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from deployment.places import Folder, Maker, Target, check_serves, strays
from etdev.deployment.names import content_digest, is_release, release_name, temporary_for
from etdev.deployment.release import Action, Outcome, Release, Terms, deploy, plan, roll_back
from etdev.deployment.state import listing
from etdev.deployment.transports.base import Transport
from etdev.errors import DeployError

TERMS = Terms(keep=3)


def now() -> datetime:
    return datetime.now(UTC)


def deploy_to(target: Target, release: Release, terms: Terms = TERMS) -> Outcome:
    with target.open() as transport:
        return deploy(transport, release, terms, now())


def names_at(target: Target) -> list[str]:
    with target.open() as transport:
        return transport.names("releases")


def test_the_first_deployment(usual_target: Target, make: Maker) -> None:
    release = make("one")
    outcome = deploy_to(usual_target, release)
    assert (outcome.action, outcome.before, outcome.removed, outcome.leftovers) == ("published", None, (), ())
    assert is_release(outcome.release)
    assert content_digest(outcome.release) == release.digest
    assert usual_target.place.pointer() == f"releases/{outcome.release}"
    assert check_serves(usual_target.place, release) is release
    assert strays(usual_target.place) == []


def test_the_same_again_changes_nothing(target: Target, make: Maker) -> None:
    first = deploy_to(target, make("one"))
    before = target.place.files()
    again = deploy_to(target, make("one"))
    assert (again.action, again.release, again.before) == ("unchanged", first.release, first.release)
    assert target.place.files() == before


def test_what_lies_there_is_not_sent_again(target: Target, make: Maker) -> None:
    first, second = deploy_to(target, make("one")), deploy_to(target, make("two"))
    (make.folder / "one-net.pte").unlink(missing_ok=True)
    again = deploy_to(target, replace(make("one"), sources={}))
    assert (again.action, again.release, again.before) == ("switched", first.release, second.release)
    assert check_serves(target.place, make("one"))
    assert names_at(target) == [first.release, second.release]


def test_older_releases_go(target: Target, make: Maker) -> None:
    made = [deploy_to(target, make(label), Terms(keep=2)) for label in "abcd"]
    assert [outcome.removed for outcome in made] == [(), (), (), (made[0].release,)]
    assert names_at(target) == [outcome.release for outcome in made[1:]]
    assert strays(target.place) == []


def test_back_and_forth(usual_target: Target, make: Maker) -> None:
    a, b, c = (deploy_to(usual_target, make(label)).release for label in "abc")
    with usual_target.open() as transport:
        back = roll_back(transport, TERMS, now())
        assert (back.action, back.release, back.before) == ("switched", b, c)
        assert roll_back(transport, TERMS, now()).release == a
        assert check_serves(usual_target.place, make("a"))
        with pytest.raises(DeployError, match=f"no release before {a}"):
            roll_back(transport, TERMS, now())
        assert transport.names("releases") == [a, b, c]
        assert deploy(transport, make("c"), TERMS, now()).action == "switched"
    assert check_serves(usual_target.place, make("c"))


def test_nothing_to_go_back_to(target: Target) -> None:
    with target.open() as transport, pytest.raises(DeployError, match="nothing is deployed at the target"):
        roll_back(transport, TERMS, now())


def test_a_damaged_release_is_not_gone_back_to(target: Target, make: Maker) -> None:
    first = deploy_to(target, make("one")).release
    deploy_to(target, make("two"))
    target.place.put(f"releases/{first}/net.ptd", b"weights of 0ne")
    with target.open() as transport, pytest.raises(DeployError, match=r"is damaged: net\.ptd has the sha256"):
        roll_back(transport, TERMS, now())
    assert check_serves(target.place, make("two"))


@pytest.mark.parametrize("current", [True, False])
def test_a_damaged_release_is_sent_again(current: bool, target: Target, make: Maker) -> None:
    first = deploy_to(target, make("one")).release
    if not current:
        deploy_to(target, make("two"))
    target.place.put(f"releases/{first}/net.ptd", b"short")
    again = deploy_to(target, make("one"))
    assert (again.action, again.release != first) == ("published", True)
    assert check_serves(target.place, make("one"))


def test_a_changed_manifest_counts_as_damage(target: Target, make: Maker) -> None:
    first = deploy_to(target, make("one")).release
    target.place.put(f"releases/{first}/manifest.json", make("two").content)
    with target.open() as transport:
        (found,) = listing(transport)
    assert (found.name, found.current, found.manifest) == (first, True, None)
    assert found.problem == "its manifest.json was changed"
    assert deploy_to(target, make("one")).action == "published"


def test_the_list(target: Target, make: Maker) -> None:
    made = [deploy_to(target, make(label)).release for label in "ab"]
    with target.open() as transport:
        roll_back(transport, TERMS, now())
        found = listing(transport)
    assert [(item.name, item.current, item.problem) for item in found] == [
        (made[1], False, None),
        (made[0], True, None),
    ]
    assert found[0].manifest == make("b").manifest
    assert abs(found[0].time - now()) < timedelta(minutes=5)


def test_a_plan_says_what_happens_and_changes_nothing(target: Target, make: Maker) -> None:
    wanted: list[tuple[str, Action]] = [("a", "published"), ("b", "published"), ("b", "unchanged"), ("a", "switched")]
    for label, action in [*wanted, ("c", "published")]:
        before = target.place.files()
        with target.open() as transport:
            planned = plan(transport, make(label), Terms(keep=1), now())
            assert target.place.files() == before
            done = deploy(transport, make(label), Terms(keep=1), now())
        assert (planned.action, planned.before) == (done.action, done.before) == (action, planned.before)
        assert planned.surplus == done.removed
        if action != "published":
            assert planned.release == done.release


def test_a_pointer_of_somebody_else(target: Target, make: Maker) -> None:
    with target.open() as transport:
        transport.write("mine/v1/net.pte", b"mine")
        transport.switch("mine/v1", ".t")
    before = target.place.files()
    with pytest.raises(DeployError, match="'mine/v1', which is not a release of etdev"):
        deploy_to(target, make("one"))
    assert target.place.files() == before


class TestSmoke:
    """The command that has to succeed before the switch."""

    def test_it_sees_the_new_release_and_the_old_pointer(self, shell_target: Target, make: Maker) -> None:
        script = 'cd "$ETDEV_RELEASE" && test -f net.pte && test -f manifest.json && ! test ../../current -ef .'
        terms = Terms(keep=3, smoke=["sh", "-c", script])
        assert deploy_to(shell_target, make("one"), terms).action == "published"
        assert deploy_to(shell_target, make("two"), terms).action == "published"
        assert check_serves(shell_target.place, make("two"))

    def test_a_failure_keeps_the_old_release(self, shell_target: Target, make: Maker) -> None:
        first = deploy_to(shell_target, make("one"))
        before = shell_target.place.files()
        terms = Terms(keep=3, smoke=["sh", "-c", "echo too slow; exit 3"])
        with pytest.raises(DeployError, match="exit code 3: too slow"):
            deploy_to(shell_target, make("two"), terms)
        assert shell_target.place.files() == before
        assert names_at(shell_target) == [first.release]

    def test_a_release_that_lay_there_stays(self, shell_target: Target, make: Maker) -> None:
        deploy_to(shell_target, make("one"))
        deploy_to(shell_target, make("two"))
        before = shell_target.place.files()
        refusing = Terms(keep=3, smoke=["false"])
        with pytest.raises(DeployError, match="exit code 1"):
            deploy_to(shell_target, make("one"), refusing)
        with shell_target.open() as transport, pytest.raises(DeployError, match="exit code 1"):
            roll_back(transport, refusing, now())
        assert shell_target.place.files() == before

    def test_a_program_that_is_not_there(self, shell_target: Target, make: Maker) -> None:
        with pytest.raises(DeployError, match=r"exit code 127|cannot run 'no-such-program'"):
            deploy_to(shell_target, make("one"), Terms(keep=3, smoke=["no-such-program"]))
        assert check_serves(shell_target.place, None) is None


def test_what_arrives_otherwise_is_refused(target: Target, make: Maker) -> None:
    """A file that is built anew while it is sent, too: the manifest is from before."""
    deploy_to(target, make("one"))
    before = target.place.files()
    release = make("two")
    release.sources["net.pte"].write_bytes(b"built anew")
    with pytest.raises(DeployError, match=r"net\.pte has 10 bytes at the target, not 2,000"):
        deploy_to(target, release)
    assert target.place.files() == before


def test_a_file_that_is_gone(target: Target, make: Maker) -> None:
    release = make("one")
    release.sources["net.ptd"].unlink()
    with pytest.raises(DeployError):
        deploy_to(target, release)
    assert target.place.files() == {}


@contextmanager
def as_process(number: int) -> Iterator[None]:
    """Names that are made in the block are those of another process."""
    with patch("etdev.deployment.names.os.getpid", lambda: number):
        yield


def _ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


class TestLeftovers:
    """What interrupted deployments leave goes with the next one; what may belong to a running one stays."""

    def _leave(self, target: Target, process: int, time: datetime) -> str:
        with as_process(process):
            name = temporary_for(release_name(time, "0123456789ab")).folder
        target.place.put(f"{name}/net.pte", b"half of")
        return name

    def test_of_a_process_that_has_ended(self, target: Target, make: Maker) -> None:
        left = self._leave(target, _ended_process(), now())
        assert deploy_to(target, make("one")).leftovers == (left,)
        assert strays(target.place) == []

    def test_of_a_process_that_runs(self, target: Target, make: Maker) -> None:
        left = self._leave(target, os.getppid(), now() - timedelta(days=3))
        assert deploy_to(target, make("one")).leftovers == ()
        assert strays(target.place) == [f"{left}/net.pte"]

    @pytest.mark.parametrize(("hours", "stays"), [(23, True), (25, False)])
    def test_of_another_machine(self, hours: int, stays: bool, target: Target, make: Maker) -> None:
        with patch("etdev.deployment.names.platform.node", lambda: "elsewhere"):
            left = self._leave(target, 1, now() - timedelta(hours=hours))
        assert deploy_to(target, make("one")).leftovers == (() if stays else (left,))
        assert strays(target.place) == ([f"{left}/net.pte"] if stays else [])

    def test_a_link_that_was_to_be_the_pointer(self, target: Target, make: Maker) -> None:
        """It goes, and what it points at stays."""
        first = deploy_to(target, make("one")).release
        with as_process(_ended_process()):
            left = temporary_for(release_name(now(), make("one").digest)).pointer
        if isinstance(target.place, Folder):
            (target.place.root / left).symlink_to(f"releases/{first}")
        else:
            target.place.put(left, b"")
        again = deploy_to(target, make("one"))
        assert (again.action, again.leftovers) == ("unchanged", (left,))
        assert check_serves(target.place, make("one"))
        assert strays(target.place) == []

    def test_what_is_not_etdevs_stays(self, target: Target, make: Maker) -> None:
        mine = {".etdev-notes": b"1", "releases/mine/a": b"2", "README": b"3", ".etdev-x/y": b"4"}
        for path, content in mine.items():
            target.place.put(path, content)
        deploy_to(target, make("one"), Terms(keep=1))
        for label in "abc":
            deploy_to(target, make(label), Terms(keep=1))
        assert mine.items() <= target.place.files().items()

    def test_a_release_whose_removal_was_interrupted(self, target: Target, make: Maker) -> None:
        left = release_name(now(), "0123456789ab")
        target.place.put(f"releases/{left}/net.pte", b"half of")
        assert deploy_to(target, make("one")).leftovers == (f"releases/{left}",)
        assert strays(target.place) == []


class Between:
    """A transport that does something just before its ``turn``-th step, and something else after each."""

    def __init__(
        self, inner: Transport, turn: int, act: Callable[[], object], watch: Callable[[], object] | None = None
    ) -> None:
        self._inner, self._turn, self._act, self._watch = inner, turn, act, watch
        self.steps = 0

    def __getattr__(self, name: str) -> object:
        step = getattr(self._inner, name)

        def taken(*arguments: object) -> object:
            self.steps += 1
            if self.steps - 1 == self._turn:
                self._act()
            answer = step(*arguments)
            if self._watch is not None:
                self._watch()
            return answer

        return taken


class Torn:
    """A transport that is lost while it removes a folder: one file of it is gone. Before, at its ``turn``-th step."""

    def __init__(self, inner: Transport, turn: int) -> None:
        self._inner, self._turn = inner, turn

    def __getattr__(self, name: str) -> object:
        step = getattr(self._inner, name)

        def taken(*arguments: str) -> object:
            self._turn -= 1
            if self._turn < 0:
                raise DeployError("the connection is cut")
            is_folder = name == "remove" and not arguments[0].endswith(".json")
            if is_folder and "net.pte" in self._inner.names(arguments[0]):
                self._inner.remove(f"{arguments[0]}/net.pte")
                self._turn = 0
                raise DeployError("the connection is cut")
            return step(*arguments)

        return taken


class Losing:
    """A transport on which releases are removed when the pointer moves to them, the first ``left`` times."""

    def __init__(self, inner: Transport, left: int) -> None:
        self._inner, self.left = inner, left

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def switch(self, path: str, temporary: str) -> None:
        self._inner.switch(path, temporary)
        if self.left:
            self.left -= 1
            self._inner.remove(path)


@pytest.mark.timeout(900)
class TestTwoAtOnce:
    """A whole deployment happens in each gap of another one."""

    def _interleaved(self, target: Target, first: Release, second: Release, terms: Terms, process: int) -> None:
        turn, steps = 0, 1
        while turn < steps:
            done: list[str] = []

            def other(done: list[str] = done) -> None:
                with as_process(process), target.open() as transport:
                    deploy(transport, second, terms, now())
                done.append("second")

            with target.open() as transport:
                between = Between(transport, turn, other)
                try:
                    deploy(between, first, terms, now())  # type: ignore[arg-type]
                    done.append("first")
                except DeployError:
                    assert process == os.getpid()
                steps = between.steps
            served = check_serves(target.place, first, second)
            assert done in (["second"], ["second", "first"], ["first"])
            if process != os.getpid():
                assert served in (first, second)
            deploy_to(target, second, terms)
            assert strays(target.place) == []
            turn += 1
        assert turn > 8

    def test_both_end_well(self, tried_target: Target, make: Maker) -> None:
        self._interleaved(tried_target, make("one", 100), make("two", 100), Terms(keep=2), os.getppid())

    def test_one_takes_the_other_for_dead(self, tried_target: Target, make: Maker) -> None:
        """Then the other one fails, and the target serves a whole release all the same."""
        self._interleaved(tried_target, make("one", 100), make("two", 100), Terms(keep=2), os.getpid())

    def test_one_takes_the_other_for_dead_and_dies_itself(self, tried_target: Target, make: Maker) -> None:
        """It was about to remove what the other one is uploading, and got anywhere with that."""
        target, served = tried_target, make("zero", 100)
        deploy_to(target, served)
        for last in (2, 9):
            turn, steps = 0, 1
            while turn < steps:

                def other(last: int = last) -> None:
                    with target.open() as transport, suppress(DeployError):
                        deploy(Torn(transport, last), make("two", 100), Terms(keep=1), now())  # type: ignore[arg-type]

                new = make(f"new{last}{turn}", 100)

                def watch(served: Release = served, new: Release = new) -> None:
                    check_serves(target.place, served, new, make("two", 100))

                with target.open() as transport:
                    between = Between(transport, turn, other, watch)
                    with suppress(DeployError):
                        deploy(between, new, Terms(keep=1), now())  # type: ignore[arg-type]
                    steps = between.steps
                served = check_serves(target.place, served, new, make("two", 100)) or served
                deploy_to(target, served, Terms(keep=1))
                assert strays(target.place) == []
                turn += 1

    def _switched(self, target: Target, turn: int, to: Release, *others: Release) -> int:
        """Switch to a release while another process deploys others at one step. Return the number of steps."""

        def deploy_others() -> None:
            with as_process(os.getppid()), target.open() as transport:
                for release in others:
                    deploy(transport, release, Terms(keep=1), now())

        with target.open() as transport:
            between = Between(transport, turn, deploy_others)
            with suppress(DeployError):
                deploy(between, to, Terms(keep=1), now())  # type: ignore[arg-type]
            return between.steps

    def test_a_release_that_one_switches_to_is_old_for_the_other(self, tried_target: Target, make: Maker) -> None:
        """The other one removes it just before."""
        target = tried_target
        turn, steps = 0, 1
        while turn < steps:
            old, present, new = (make(f"{label}{turn}", 100) for label in ("old", "present", "new"))
            deploy_to(target, old, Terms(keep=1))
            deploy_to(target, present, Terms(keep=1))

            steps = self._switched(target, turn, old, new)
            assert check_serves(target.place, old, present, new)
            turn += 1

    @pytest.mark.parametrize("was_current", [True, False])
    def test_two_deployments_remove_a_release_and_the_current_one(
        self, tried_target: Target, make: Maker, was_current: bool
    ) -> None:
        """The switch to the removed release has to be undone. The release that was current, if any, is removed, too."""
        target = tried_target
        turn, steps = 0, 1
        while turn < steps:
            old, present, *new = (make(f"{label}{turn}", 100) for label in ("old", "present", "new", "newer"))
            deploy_to(target, old, Terms(keep=1))
            if was_current:
                deploy_to(target, present, Terms(keep=1))
            else:
                with target.open() as transport:
                    transport.remove("current.json" if target.kind == "s3" else "current")
                assert target.place.pointer() is None

            steps = self._switched(target, turn, old, *new)
            assert check_serves(target.place, old, present, *new)
            turn += 1

    def test_releases_that_are_removed_in_turn(self, tried_target: Target, make: Maker) -> None:
        """Each of two releases is removed as soon as the pointer refers to it."""
        target = tried_target
        kept, *rest = (make(label, 100) for label in ("kept", "current", "next"))
        for release in (rest[1], kept, rest[0]):
            deploy_to(target, release, Terms(keep=5))
        with target.open() as transport:
            losing = Losing(transport, 2)
            with pytest.raises(DeployError, match="removed the release"):
                deploy(losing, rest[1], Terms(keep=5), now())  # type: ignore[arg-type]
        assert losing.left == 0
        assert check_serves(target.place, kept) is kept

    def test_a_release_that_is_old_for_one_is_new_for_the_other(self, tried_target: Target, make: Maker) -> None:
        """One removes it while the other switches to it."""
        for label in ("one", "three", "four"):
            deploy_to(tried_target, make(label, 100))
        turn, steps = 0, 1
        while turn < steps:

            def other() -> None:
                with as_process(os.getppid()), tried_target.open() as transport:
                    deploy(transport, make("one", 100), Terms(keep=5), now())

            with tried_target.open() as transport:
                between = Between(transport, turn, other)
                deploy(between, make(f"new{turn}", 100), Terms(keep=1), now())  # type: ignore[arg-type]
                steps = between.steps
            assert check_serves(tried_target.place, make("one", 100), make(f"new{turn}", 100))
            assert strays(tried_target.place) == []
            turn += 1


def test_sources_are_only_read(target: Target, make: Maker) -> None:
    release = make("one")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(make.folder).iterdir()}
    deploy_to(target, release)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in make.folder.iterdir()} == before
