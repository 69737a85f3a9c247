"""Placement of tensors on devices, and the copies between host and devices that this requires."""
