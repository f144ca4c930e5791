"""Loops that must stay loops, as programs write them."""
