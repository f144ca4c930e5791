"""Tells whether torch calls functions of a program where its text has no call of them."""

from __future__ import annotations

import re

from perflint.analysis.facts import Program

_HOOK = re.compile(r"\bregister_\w*hook\b")


def registers_hooks(program: Program) -> bool:
    """Does the program have torch call something of its own with each forward or backward?"""
    return _HOOK.search(program.text) is not None
