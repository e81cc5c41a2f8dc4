"""Backends: what builds routes, runs them and times them."""
