"""The linker: passes that transform a program, then planned addresses for it. Imports neither torch nor executorch."""

from etdev.linker.link import link, link_foreign
from etdev.linker.options import CallerOwned, Linked, LinkOptions

__all__ = ["CallerOwned", "LinkOptions", "Linked", "link", "link_foreign"]
