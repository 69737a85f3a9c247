"""The command line on a terminal, with somebody who answers."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from support.commands import etdev_process

_SECONDS = 120


def on_a_terminal(
    folder: Path, *arguments: str, answers: Sequence[tuple[str, str]] = (), env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run ``etdev ARGUMENTS`` to its end: the exit code, and everything that the terminal showed.

    ``answers`` are pairs of a question that is waited for and what is typed then.
    """
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm", "COLUMNS": "160", "CI": "", **(env or {})}
    # Its controlling terminal, too: that is how Ctrl-C arrives.
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": partial(os.login_tty, theirs)}
    process = etdev_process(*arguments, folder=folder, env=settings, **streams)
    os.close(theirs)
    shown, seen, left, end = b"", 0, list(answers), time.monotonic() + _SECONDS
    while True:
        if time.monotonic() > end:
            process.kill()
        ready, _, _ = select.select([ours], [], [], 1)
        if not ready and process.poll() is not None:
            break
        try:
            shown += os.read(ours, 65536) if ready else b""
        except OSError:  # The other end is closed.
            break
        if left and left[0][0].encode() in shown[seen:]:
            seen = len(shown)
            os.write(ours, left.pop(0)[1].encode())
    os.close(ours)
    assert not left, f"was not asked: {left[0][0]}\n{shown.decode()}"
    return process.wait(timeout=20), shown.decode()
