"""ExecuTorch's own Python runtime in a child process. A program that crashes it does not end the build."""

from etdev.runtime.child import ProgramFailureError, RuntimeCrashError
from etdev.runtime.stock.client import StockRuntime

__all__ = ["ProgramFailureError", "RuntimeCrashError", "StockRuntime"]
