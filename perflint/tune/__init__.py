"""Races what an expert would try on a program, and keeps the best that is proved."""
