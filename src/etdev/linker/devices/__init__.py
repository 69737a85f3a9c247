"""Devices: the placement of tensors, and the copies between host and devices."""
