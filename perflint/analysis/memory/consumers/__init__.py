"""Follows a tensor to everything that reads it: names, views, branches, containers, the functions of the file."""

from perflint.analysis.memory.consumers.roles import (
    WRAPPERS,
    Consumer,
    Reading,
    Role,
    converts,
    is_view,
    joins,
)
from perflint.analysis.memory.consumers.steps import reading

__all__ = [
    "WRAPPERS",
    "Consumer",
    "Reading",
    "Role",
    "converts",
    "is_view",
    "joins",
    "reading",
]
