"""The build cache: restores the files of an earlier build if none of that build's inputs has changed."""

from etdev.pipeline.cache.cache import Cache, open_store
from etdev.pipeline.cache.comparison import changes
from etdev.pipeline.cache.entries import Difference, Entry, Facts, Output, Reads
from etdev.pipeline.cache.facts import linked_facts, locked_facts, object_facts
from etdev.pipeline.cache.watch import FileAccess, Watch

__all__ = [
    "Cache",
    "Difference",
    "Entry",
    "Facts",
    "FileAccess",
    "Output",
    "Reads",
    "Watch",
    "changes",
    "linked_facts",
    "locked_facts",
    "object_facts",
    "open_store",
]
