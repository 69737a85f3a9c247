"""ExecuTorch's own Python runtime, in a child process: a program that crashes it cannot take the build along."""

from etdev.runtime.stock.client import ProgramFailureError, RuntimeCrashError, StockRuntime

__all__ = ["ProgramFailureError", "RuntimeCrashError", "StockRuntime"]
