"""The command ``etdev report``: it renders a program and the files of its build as one page."""

from etdev.inspection.report.document import build_page, file_page, page_place, report
from etdev.inspection.report.provenance import files_read

__all__ = ["build_page", "file_page", "files_read", "page_place", "report"]
