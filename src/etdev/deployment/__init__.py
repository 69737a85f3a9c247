"""Deployment of built files to a target as whole releases: one algorithm (``release``) over several transports."""
