"""The command ``etdev report``, which writes a page about a program from its file and the files of its build."""

from etdev.inspection.report.document import build_page, file_page, page_place, report
from etdev.inspection.report.provenance import files_read

__all__ = ["build_page", "file_page", "files_read", "page_place", "report"]
