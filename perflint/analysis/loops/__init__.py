"""Loops: what they count, what they carry from one iteration to the next, and which of them run over time."""
