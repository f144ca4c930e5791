"""The whole table and its text, one entry a line so that a new torch shows as a readable diff."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perflint.torch_ops.generate.classes import classes, distribution_members, exports
from perflint.torch_ops.generate.functions import attributes, functions_and_methods

Table = dict[str, Mapping[str, str | list[str]]]


def build(torch: Any) -> Table:
    """The table of this torch."""
    functions, methods = functions_and_methods(torch)
    return {
        "source": {"torch": torch.__version__.partition("+")[0]},
        "functions": functions,
        "methods": methods,
        "attributes": attributes(torch),
        "distribution": distribution_members(torch),
        "classes": classes(torch),
        "exports": exports(),
    }


def as_text(table: Table) -> str:
    """The table as JSON."""
    ordered = {section: dict(sorted(entries.items())) for section, entries in table.items()}
    return json.dumps(ordered, indent=0, ensure_ascii=True) + "\n"
