"""The listing of `perflint config`: every setting as a line of TOML, with where it came from behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.project.config_values import READERS

if TYPE_CHECKING:
    from perflint.project.config import Resolved

_UNSET = {
    "jobs": "one per core",
    "cache-dir": ".perflint_cache in that folder",
    "baseline": "none",
}


def listing(resolved: Resolved) -> str:
    """Every setting and its origin; the text is valid TOML for a perflint.toml in the root."""
    lines = list(_lines(resolved))
    column = min(max((len(line) for line, origin in lines if origin), default=0), 60)
    text = "".join(f"{line:<{column}}  # {origin}\n" if origin else f"{line}\n" for line, origin in lines)
    return f"# patterns and relative paths start from {resolved.settings.root}\n{text}"


def _lines(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """Lines of TOML, each with the origin of its setting or "" where it holds none."""
    for key in READERS:
        value = getattr(resolved.settings, key.replace("-", "_"))
        line = (
            f"# {key}: {_UNSET[key]}"
            if value is None
            else f"{key} = {_table(value) if key == 'per-file-ignores' else _toml(value)}"
        )
        yield line, resolved.origins[key]
    for name, options in resolved.settings.rules.items():
        yield "", ""
        yield f"[rules.{name}]", ""
        for key, value in options.items():
            yield f"{key} = {_toml(value)}", resolved.origins[f"rules.{name}.{key}"]


def _table(pairs: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    return f"{{ {', '.join(f'{_toml(pattern)} = {_toml(names)}' for pattern, names in pairs)} }}" if pairs else "{}"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
