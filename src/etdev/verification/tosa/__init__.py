"""Execution of TOSA graphs by Arm's reference model, in a process of its own."""
