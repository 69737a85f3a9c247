"""Delegates of a program, and the instructions that call them."""

from etdev.program.delegates.calls import (
    ALIAS_SAFE,
    REFERENCE,
    STATELESS,
    XNNPACK,
    arguments_of,
    delegate_devices,
)
from etdev.program.delegates.inputs import delegate_inputs, unsplit_call

__all__ = [
    "ALIAS_SAFE",
    "REFERENCE",
    "STATELESS",
    "XNNPACK",
    "arguments_of",
    "delegate_devices",
    "delegate_inputs",
    "unsplit_call",
]
