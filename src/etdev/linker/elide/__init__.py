"""Passes that remove copies. Each turns a method into an equivalent method with fewer copies."""
