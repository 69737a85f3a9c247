"""Runtimes for programs, and device memory."""
