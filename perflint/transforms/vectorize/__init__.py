"""Lifts loops over time: rewrites them as operations on all steps of a sequence at once."""
