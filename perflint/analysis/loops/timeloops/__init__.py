"""Recognises time loops, and classifies them by data flow."""
