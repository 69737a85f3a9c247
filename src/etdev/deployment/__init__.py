"""Deployment of built files to a target, as releases that are either complete or absent."""
