"""Rewrites of programs: from what the analyses prove to edits of the text."""
