"""ExecuTorch's own Python runtime in a child process, so that a crash of the runtime does not end the build."""

from etdev.runtime.child import ProgramFailureError, RuntimeCrashError
from etdev.runtime.stock.client import StockRuntime

__all__ = ["ProgramFailureError", "RuntimeCrashError", "StockRuntime"]
