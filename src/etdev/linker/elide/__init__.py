"""Passes that remove copies: each takes a method and gives one that computes the same with fewer of them."""
