"""The checks of verification, one module each."""
