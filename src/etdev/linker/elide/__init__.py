"""Passes that remove copies. Each returns an equivalent method with fewer copies."""
