"""ExecuTorch's own Python runtime in a child process, so that a crashing program does not end the build."""

from etdev.runtime.stock.client import ProgramFailureError, RuntimeCrashError, StockRuntime

__all__ = ["ProgramFailureError", "RuntimeCrashError", "StockRuntime"]
