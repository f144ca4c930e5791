"""A library that looks, as it is imported, whether another one is there: imported before a program by a test."""

from __future__ import annotations

from importlib.util import find_spec

IS_THERE = find_spec("seldom_installed") is not None
