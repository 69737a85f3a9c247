"""Page of ``etdev report``: its data, and its rendering as one HTML file. This package does not read programs."""

from etdev.page.model import Document
from etdev.page.render import render

__all__ = ["Document", "render"]
