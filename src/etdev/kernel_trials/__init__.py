"""Trial runs that find out which custom kernels may write their output over an operand."""
