"""Kernel-aware lowering: forms of ops that run faster with a runtime's kernels, and tiling that saves memory."""
