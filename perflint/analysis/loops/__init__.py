"""Loops: their headers, loop-carried values, and which of them run over time."""
