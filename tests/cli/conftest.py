"""What the tests of commands share."""

from cli.running import run

__all__ = ["run"]
