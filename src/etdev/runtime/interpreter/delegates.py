"""Executors of delegates: the built-in executor, and executors of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from etdev import plugins
from etdev.plugins import EXECUTORS
from etdev.runtime.interpreter import reference
from etdev.runtime.interpreter.settings import DelegateContext, DelegateExecutor, ExecutorFactory


def executors() -> Mapping[str, ExecutorFactory]:
    """Return a map from each backend to the function that loads its delegates.

    The function for a plugin's backend imports the plugin on its first call.
    """
    others = (name for name in plugins.names(EXECUTORS) if name not in EXECUTORS.built_in)
    return {reference.BACKEND: reference.ReferenceExecutor, **{name: partial(_load_plugin, name) for name in others}}


def _load_plugin(name: str, context: DelegateContext) -> DelegateExecutor:
    found: DelegateExecutor = plugins.load(EXECUTORS, name)(context)
    return found
