"""The page of ``etdev report``: what it shows, and how that becomes one HTML file. Knows nothing of programs."""

from etdev.page.model import Document
from etdev.page.render import render

__all__ = ["Document", "render"]
