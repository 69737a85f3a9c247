"""Kernel-aware lowering: forms of ops that run faster on a runtime's kernels, and tiling that saves memory."""
