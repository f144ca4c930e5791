"""Checks and fixes one program: rules, findings, fixes, suppression; and the user's own errors."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user can put right: one clear line for them, and exit code 2."""
