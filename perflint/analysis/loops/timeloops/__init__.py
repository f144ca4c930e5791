"""Recognises loops over time, and tells by data flow which kind each is."""
