"""Trial runs that determine which custom kernels may overwrite an operand with their output."""
