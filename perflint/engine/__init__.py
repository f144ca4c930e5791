"""Checks and fixes one program: rules, findings, fixes, suppression; the user's own errors, and numbers in words."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user can put right: one clear line for them, and exit code 2."""


def count(number: int, one: str, more: str = "") -> str:
    """Such as `1 fix` or `2 fixes`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"
