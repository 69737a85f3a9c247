"""Running a program with torch's kernels, in exactly the memory that was planned for it.

Kernels compute aside; what they give is checked against the output that the program has for it, and only then written
there. Whatever a program does that the runtime would get wrong is an error here: an output that is too small, one that
overlaps an operand of a kernel that cannot bear it, memory of a device in the hands of the host.
"""
