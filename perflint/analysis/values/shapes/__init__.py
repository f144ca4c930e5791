"""Infers the shapes of tensors."""
