"""Interpreter that runs a program with PyTorch's kernels, in exactly the planned memory.

Each kernel computes into temporary memory. The interpreter compares the results' types and sizes with the program's
output tensors, and then copies the results into these tensors. It raises an error wherever the runtime would compute
something wrong:

* an output that is too small,
* an output that overlaps an operand of a kernel that does not work in place,
* host code that accesses device memory.
"""
