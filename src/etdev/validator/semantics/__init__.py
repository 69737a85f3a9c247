"""Semantics of operators: effects, byte movement, sizes of outputs, and allowed overlaps."""
