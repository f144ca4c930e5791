"""Canonical names: one for the functions, methods and operators that do the same.

What torch documents as "Alias for :func:`...`" is one operation (its other registries are incomplete, or can't be
imported without its test suite's needs), and so is what has one name as function, method and operator, as torch.relu
and torch.nn.functional.relu, or torch.add, Tensor.add, Tensor.add_, Tensor.__add__ and Tensor.__iadd__.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perflint.torch_ops.generate import by_hand
from perflint.torch_ops.table import METHODS, short_name

_ALIAS = re.compile(r"^\s*Alias (?:for|of) :(?:func|meth|attr):`~?(?:torch\.)?(?:Tensor\.)?([\w.]+)", re.MULTILINE)


def canonical_names(members: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """The short canonical name of each function and method, by qualified names; methods begin with torch.Tensor."""
    plain = {name: by_hand.NAMES.get(name) or _plain(short_name(name), members) for name in members}
    groups: dict[str, set[str]] = defaultdict(set)
    targets = set()
    for name, member in members.items():
        group = {plain[name]}
        alias = None if name in by_hand.NAMES else _ALIAS.search(str(getattr(member, "__doc__", "") or ""))
        if alias and (target := _plain(short_name("torch." + alias[1]), members)) in plain.values():
            targets.add(target)
            group.add(target)
        for each in list(group):
            group |= groups[each]
        for each in group:
            groups[each] = group
    return {
        name: min(groups[each], key=lambda it: (it.count("."), it not in targets, it)) for name, each in plain.items()
    }


def _plain(name: str, members: Iterable[str]) -> str:
    """The name without the marks of operators and of writing in place, where there is a function without them."""
    if name.startswith("__"):
        bare = name.strip("_")
        return by_hand.OPERATORS.get(bare) or by_hand.OPERATORS.get(bare[1:], name)
    if name.endswith("_") and "." not in name:
        homes = ("torch.", "torch.nn.functional.", METHODS)
        return name[:-1] if any(home + name[:-1] in members for home in homes) else name
    return name
