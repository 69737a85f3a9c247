"""Passes that remove copies. Each pass returns an equivalent method with fewer copies."""
