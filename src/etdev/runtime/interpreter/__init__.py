"""Interpreter that runs a program with PyTorch's kernels, in exactly the planned memory.

Each kernel computes its results in temporary memory. The interpreter checks types and sizes of the results, and then
copies them to the program's output tensors. It raises an error where ExecuTorch's runtime would compute wrong results:

* an output is too small,
* an output overlaps an operand, and the kernel does not work in place,
* host code accesses device memory.
"""
