"""A progress that can be asked afterwards."""

from __future__ import annotations

from etdev.pipeline.project.progress import Silent


class Told(Silent):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, target: str, stage: str) -> None:
        self.events.append(f"{target} {stage}")

    def ended(self, target: str) -> None:
        self.events.append(f"{target} ended")
