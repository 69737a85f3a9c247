"""The linker: passes that transform a program, and the planning of the program's memory.

This package imports neither torch nor executorch.
"""

from etdev.linker.link import link, link_foreign
from etdev.linker.options import CallerOwned, Linked, LinkOptions

__all__ = ["CallerOwned", "LinkOptions", "Linked", "link", "link_foreign"]
