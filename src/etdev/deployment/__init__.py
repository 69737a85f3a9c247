"""Deployment of built files to a target, as whole releases, in the same way on all transports."""
