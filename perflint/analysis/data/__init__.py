"""Loaders: where they are built, what they read, and who starts their workers."""
