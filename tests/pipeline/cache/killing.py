"""Builds that are killed, for :mod:`test_killed`: a process of its own, which has everything imported.

``python killing.py FOLDER MOMENT...`` builds the project in FOLDER once as it should be; then, for each moment, from
nothing, killed there, and again to its end. A moment ``e7`` is the seventh time that the build is about to change
something in the file system, ``t0.25`` is a quarter of its duration. Prints what was found, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "shutil.copyfile", "sqlite3.connect")


def main() -> None:
    folder, moments = Path(sys.argv[1]), sys.argv[2:]
    import executorch.exir  # noqa: F401

    import etdev.pipeline.builder.targets  # noqa: F401 - it is here before the process is split

    changes, duration = count_changes(folder), 0.0
    expected = contents(folder)
    if any(moment.startswith("t") for moment in moments):
        clear(folder)
        began = time.monotonic()
        assert in_child(lambda: build(folder)) == 0
        duration = time.monotonic() - began
    found = {"files": sorted(expected), "changes": changes, "trials": []}
    for moment in moments:
        clear(folder)
        code = killed_at(folder, moment, duration)
        ended = in_child(lambda: build(folder))
        after = contents(folder)
        found["trials"].append(  # type: ignore[attr-defined]
            {
                "moment": moment,
                "killed": code == -signal.SIGKILL,
                "code": ended,
                "differs": sorted(name for name in {*after, *expected} if after.get(name) != expected.get(name)),
                "cache": wrong_in_cache(folder / "cache"),
                "again": in_child(lambda: build(folder, expect_unchanged=True)),
            }
        )
    print(json.dumps(found))


def build(folder: Path, *, expect_unchanged: bool = False) -> None:
    import etdev

    os.environ["ETDEV_CACHE_DIR"] = str(folder / "cache")
    result = etdev.build(folder / "etdev.toml", verify=False)
    assert not expect_unchanged or not result.targets[0].seconds


def clear(folder: Path) -> None:
    """As if nothing had ever been built."""
    for name in ("build", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "etdev.lock").unlink(missing_ok=True)


def contents(folder: Path) -> dict[str, str]:
    """Digest of every file but the cache's: of a report without how long it took and what was there already; of the
    results of the run that there are any, as of an ETRecord, where ExecuTorch puts numbers of objects in memory."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("cache/") and "__pycache__" not in name:
            content = path.read_bytes()
            if path.suffix == ".etrecord" or path.name == "results.json":
                content = b""
            if path.name == "report.json":
                report = json.loads(content)
                for target in report["targets"]:
                    target["seconds"] = {}
                    target["notes"] = [note for note in target["notes"] if not note.startswith("linked again")]
                content = json.dumps(report).encode()
            found[name] = hashlib.sha256(content).hexdigest()
    return found


def wrong_in_cache(cache: Path) -> list[str]:
    """Files whose content is not what their name says, entries that cannot be read, and whatever else is there."""
    from etdev.pipeline.cache.entries import Entry

    wrong = []
    for path in cache.rglob("*"):
        name = path.relative_to(cache)
        if not path.is_file() or name.parts == ("digests.sqlite",):
            continue
        if name.parts[0] == "files":
            good = hashlib.sha256(path.read_bytes()).hexdigest() == "".join(name.parts[1:])
        elif name.suffix == ".json":
            entry = Entry.from_text(path.read_bytes())
            good = all((cache / "files" / one.sha256[:2] / one.sha256[2:]).is_file() for one in entry.outputs.values())
        else:
            good = False
        if not good:
            wrong.append(str(name))
    return wrong


def in_child(action: Callable[[], object]) -> int:
    return wait_for(start(action))


def start(action: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    finally:
        os._exit(code)


def wait_for(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def count_changes(folder: Path) -> int:
    clear(folder)
    reader, writer = os.pipe()

    def action() -> None:
        seen = on_changes(lambda _: None)
        build(folder)
        os.write(writer, str(len(seen)).encode())

    assert in_child(action) == 0
    return int(os.read(reader, 20))


def on_changes(action: Callable[[int], None]) -> list[str]:
    """Call something before each change of the file system, with its number from 1 on."""
    seen: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        flags = arguments[2] if event == "open" else 0
        writes = isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY
        if event in CHANGES or (event == "open" and writes):
            seen.append(event)
            action(len(seen))

    sys.addaudithook(hook)
    return seen


def killed_at(folder: Path, moment: str, duration: float) -> int:
    if moment.startswith("t"):
        pid = start(lambda: build(folder))
        time.sleep(float(moment[1:]) * duration)
        os.kill(pid, signal.SIGKILL)
        return wait_for(pid)
    wanted = int(moment[1:])

    def action() -> None:
        on_changes(lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == wanted else None)
        build(folder)

    return in_child(action)


if __name__ == "__main__":
    main()
