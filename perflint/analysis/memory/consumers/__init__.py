"""Follows a tensor to everything that reads it: names, views, branches, containers, the functions of the file."""

from perflint.analysis.memory.consumers.roles import (
    CONCATENATIONS,
    CONVERSIONS,
    VIEWS,
    WRAPPERS,
    Consumer,
    Reading,
    Role,
)
from perflint.analysis.memory.consumers.steps import reading

__all__ = [
    "CONCATENATIONS",
    "CONVERSIONS",
    "VIEWS",
    "WRAPPERS",
    "Consumer",
    "Reading",
    "Role",
    "reading",
]
