"""Semantics of operators: their effects, the bytes that they move, the sizes of their outputs, and overlaps."""
