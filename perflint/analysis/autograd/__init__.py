"""Autograd: where gradients are recorded, what differentiates, and what may keep a graph."""
