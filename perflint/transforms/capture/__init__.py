"""Captures loops that must stay as CUDA graphs: which can be, the edits that do it, and what stands in the way."""
