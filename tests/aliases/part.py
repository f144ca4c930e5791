"""What a generated program is put together from: aliases, effects on them and places for these, read from catalogues.

A catalogue is a text. Lines before the first heading are parts of one line each, named by themselves; after a
heading `== name` stands one part of several lines. What a part needs at module level stands above a line `--`, and what
a place runs later below a line `-- late`. Placeholders: `SRC` is what an alias is made of, `DST` the alias, a line
`HERE` where statements go, and `EFFECT` where an expression has to.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

FOLDER = Path(__file__).parent
_IMPORTS = {
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np",
    "pytree": "import torch.utils._pytree as pytree",
    "torch.utils.dlpack": "import torch.utils.dlpack",
    "torch.utils.checkpoint": "import torch.utils.checkpoint",
    "deque": "from collections import deque",
    "namedtuple": "from collections import namedtuple",
    "defaultdict": "from collections import defaultdict",
    "NamedTuple": "from typing import NamedTuple",
    "SimpleNamespace": "from types import SimpleNamespace",
    "ThreadPoolExecutor": "from concurrent.futures import ThreadPoolExecutor",
    "TensorDataset": "from torch.utils.data import TensorDataset",
    "same": "from shared import same",
    **{
        name: f"import {name}"
        for name in (
            *("asyncio", "contextlib", "contextvars", "copy", "ctypes", "dataclasses", "decimal", "elsewhere"),
            *("fractions", "functools", "io", "itertools", "json", "math", "operator", "pickle", "queue", "shared"),
            *("statistics", "threading", "weakref"),
        )
    },
}


class Kind(Enum):
    """What a name of a template stands for."""

    TENSOR = "tensor"
    LIST = "list"
    ROWS = "rows"  # a list of tensors
    NUMBER = "number"


@dataclass(frozen=True)
class Part:
    """An alias, an effect or a place: `code`, what it needs at module level, and what it runs later."""

    name: str
    code: str
    top: str = ""
    late: str = ""

    @property
    def is_expression(self) -> bool:
        """May it stand where only an expression may?"""
        try:
            ast.parse(self.code, mode="eval")
        except SyntaxError:
            return False
        return True

    @property
    def wants_expression(self) -> bool:
        """Does it hold an effect where only an expression may stand?"""
        return "EFFECT" in self.code


def catalogue(name: str) -> tuple[Part, ...]:
    """The parts in the catalogue of that name."""
    lines, *blocks = re.split(r"(?m)^== ", "\n" + (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    return (*(Part(line, line) for line in lines.splitlines() if line), *map(_part, blocks))


def _part(block: str) -> Part:
    name, _, code = block.partition("\n")
    top, separator, rest = code.partition("\n--\n")
    code, _, late = (rest if separator else code).partition("-- late\n")
    return Part(name, code.strip("\n"), top.strip("\n") if separator else "", late.strip("\n"))


def imports(code: str) -> list[str]:
    """The imports that `code` needs."""
    uses = {name: rf"(?<![\w.]){re.escape(name)}\b" for name in _IMPORTS}
    calls = {name: pattern for name, pattern in uses.items() if re.search(pattern, code)}
    return [_IMPORTS[name] for name in calls]


def filled(code: str, **values: str) -> str:
    """`code` with the placeholders replaced; what replaces a line of its own may have several, and is indented."""
    for name, value in values.items():
        code = "\n".join(
            indented(value, line[: -len(name)]) if line.strip() == name else re.sub(rf"\b{name}\b", value, line)
            for line in code.split("\n")
        )
    return code


def indented(code: str, margin: str) -> str:
    """`code` with the margin before each line that is not empty."""
    return "\n".join(margin + line if line else line for line in code.split("\n"))
