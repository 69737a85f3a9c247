"""Pages about one program or two programs, made from program files and from files of their builds."""

from etdev.inspection.provenance import files_read
from etdev.inspection.report.difference import diff_page
from etdev.inspection.report.document import build_page, file_page, page_place, report

__all__ = ["build_page", "diff_page", "file_page", "files_read", "page_place", "report"]
