"""Runtimes that execute programs, allocators of device memory, and workers that run tasks."""
