"""The console script ``etdev``, and ``python -m etdev``."""

from __future__ import annotations

import sys

from etdev.data_stack import with_room


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from etdev.cli.rendering.display import DISPLAY

        DISPLAY.start_for(sys.argv[1:])  # Show the start before slow imports begin.
        try:
            code = _run()
        finally:
            DISPLAY.close()
    except ModuleNotFoundError as error:
        if error.name != "fcntl":
            raise
        print("error: etdev does not run on Windows\nhelp: use WSL, which is Linux", file=sys.stderr)
        code = 3
    except KeyboardInterrupt:  # An interrupt during an import. `run` handles later ones.
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


@with_room
def _run() -> int:
    from etdev.cli.app import run
    from etdev.cli.endings import divert_stdout, leave_at_once
    from etdev.cli.interrupts import ignore_from_now_on

    code = run(sys.argv[1:])
    ignore_from_now_on()
    divert_stdout()
    if "torch" in sys.modules:
        leave_at_once(code)
    return code


if __name__ == "__main__":
    main()
