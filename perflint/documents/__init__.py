"""Files as programs to check: Python sources and notebooks, read and written back unchanged but for edits."""
