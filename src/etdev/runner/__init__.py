"""C++ projects that run a program in static memory (``etdev runner``)."""

from etdev.runner.folder import MANIFEST, remove_project, write_project
from etdev.runner.generate import project_files
from etdev.runner.make import make_project, renew_project
from etdev.runner.pools import PoolSizes
from etdev.runner.source import ProgramFile

__all__ = [
    "MANIFEST",
    "PoolSizes",
    "ProgramFile",
    "make_project",
    "project_files",
    "remove_project",
    "renew_project",
    "write_project",
]
