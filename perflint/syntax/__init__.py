"""One parsed file: its text, tree, names and positions, without any analysis."""
