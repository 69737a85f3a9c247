"""Deployment of built files to a target as complete releases. All transports work in the same way."""
