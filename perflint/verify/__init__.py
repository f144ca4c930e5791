"""Proves on the user's own machine that a patched program gives the same result and is faster."""
