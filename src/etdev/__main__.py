"""The console script ``etdev``, and ``python -m etdev``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from etdev.cli.app import run
        from etdev.cli.endings import divert_stdout
        from etdev.cli.interrupts import ignore_from_now_on

        code = run(sys.argv[1:])
        ignore_from_now_on()
        divert_stdout()
    except KeyboardInterrupt:  # While this was being imported; everything later is run's to answer.
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
