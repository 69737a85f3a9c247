"""The linker: passes over programs, and the addresses that come out. No torch, no executorch."""

from etdev.linker.link import link, link_foreign
from etdev.linker.options import CallerOwned, Linked, LinkOptions

__all__ = ["CallerOwned", "LinkOptions", "Linked", "link", "link_foreign"]
