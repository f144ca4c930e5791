"""What the names in a loop header suggest: a time axis, or something else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from perflint.analysis.loops.flow import LoopFlow
from perflint.analysis.loops.found import Header
from perflint.syntax.walk import name_called, path_of

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GLUED = re.compile(r"^(?:num|n|max|mini|micro|multi|sub|up|down)?([a-z]{3,}?)(?:size|sz|num|idx|id)?$")
_PLURAL = re.compile(r"(?<=\w\w)(?:(?<=x|s|h)es|(?<!s)s)$")

TIME = frozenset({"len", "length", "seq", "sequence"})
OTHER_AXES = frozenset({"batch", "image", "iter", "layer", "order", "subdivision"})


def counts_time(header: Header) -> bool:
    """Does the program call what it counts, or the bound, steps of time?"""
    bounds = _counted(header) - header.indices
    return "t" in header.indices or any_of(bounds, TIME)


def names_another_axis(header: Header, flow: LoopFlow) -> bool:
    """Does the program call what it counts or iterates over batches, iterations or layers?"""

    lists = {each.base.rpartition(".")[2] for each in flow.slices if not each.is_tensor and _is_name(each.base)}
    return any_of(_counted(header) | _walked(header) | lists, OTHER_AXES)


def counts_rounds(header: Header) -> bool:
    """Does the program call what it counts batches, iterations of an optimisation or layers?"""
    return any_of(_counted(header), OTHER_AXES)


def _counted(header: Header) -> set[str]:
    """The names of what counts the iterations, and of what bounds them."""
    bounds = (part for bound in header.bounds for part in sizes(bound))
    return {*header.indices, *(part.attr if isinstance(part, ast.Attribute) else part.id for part in bounds)}


def _walked(header: Header) -> set[str]:
    """The names of the elements that are iterated over, and of what they are elements of."""
    targets = (*(each.target for each in header.elements), *header.members)
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names | {each.base.rpartition(".")[2] for each in header.elements if _is_name(each.base)}


def _is_name(base: str) -> bool:
    return base.replace(".", "").isidentifier()


def words(name: str) -> set[str]:
    """The words of a name, as they are and in the singular, and without what is glued to them: nlayers, batchsize."""
    plain = {word.lower() for word in _WORD.findall(name)}
    cores = plain | {match[1] for word in plain if (match := _GLUED.match(word))}
    return cores | {_PLURAL.sub("", word) for word in cores}


def any_of(names: Iterable[str], vocabulary: frozenset[str]) -> bool:
    """Does one of the names contain one of the words?"""
    return any(not vocabulary.isdisjoint(words(name)) for name in names)


def sizes(node: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """The variables that a bound is computed from, not those whose size it is."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and path_of(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from sizes(node.left)
        yield from sizes(node.right)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node.value
    elif isinstance(node, ast.Call) and name_called(node) in ("int", "min", "max"):
        for argument in node.args:
            yield from sizes(argument)
