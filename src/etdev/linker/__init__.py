"""The linker: passes over programs, and the addresses that come out. No torch, no executorch."""

from etdev.linker.keep import keep_smaller_plans
from etdev.linker.link import link
from etdev.linker.options import CallerOwned, Linked, LinkOptions

__all__ = ["CallerOwned", "LinkOptions", "Linked", "keep_smaller_plans", "link"]
