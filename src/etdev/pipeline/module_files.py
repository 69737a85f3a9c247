"""How the file of a module is named."""

from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES

MODULE_ENDS = ("/__init__.py", *EXTENSION_SUFFIXES, *SOURCE_SUFFIXES)
"""Behind the path of a module without a suffix, in the order in which Python looks for them."""
