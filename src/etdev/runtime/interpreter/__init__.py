"""Interpreter that runs a program with PyTorch's kernels, in exactly the planned memory.

A kernel computes into memory of its own. The interpreter checks the results against the program's outputs, then writes
them to these. It raises an error wherever the runtime would compute something wrong:

* an output that is too small,
* an output that overlaps an operand of a kernel that does not work in place,
* host code that accesses device memory.
"""
