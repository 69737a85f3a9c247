"""Placement of tensors on devices, with the copies between host and devices that placement requires."""
