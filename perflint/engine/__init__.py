"""Checks and fixes one program: rules, findings, fixes, suppression."""
