"""Profiles a program: where the time of its steps goes, by regime, by source line and by finding."""
