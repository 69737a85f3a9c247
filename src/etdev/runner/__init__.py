"""C++ projects that run a program in static memory (``etdev runner``)."""

from etdev.runner.folder import MANIFEST, write_project
from etdev.runner.generate import project_files
from etdev.runner.pools import PoolSizes
from etdev.runner.source import ProgramFile

__all__ = ["MANIFEST", "PoolSizes", "ProgramFile", "project_files", "write_project"]
