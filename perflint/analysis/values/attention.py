"""Recognises attention: products of queries and keys whose softmax weighs values."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.data.origins import Origins
from perflint.analysis.ir.flow import Flow
from perflint.analysis.program import Kind, Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.shapes import Shapes
from perflint.syntax.scopes import bind
from perflint.syntax.walk import bindings_of, integer, path_of

_SCORED = frozenset(
    "mul div add sub masked_fill where to float half type type_as contiguous view reshape unsqueeze squeeze".split()
)
_KEPT = frozenset("to float half type type_as contiguous transpose permute view reshape dropout".split())
_BIASES = re.compile(r"mask|bias|rel_?pos|alibi", re.IGNORECASE)  # what functions that add them are called
_DROPPING = re.compile(r"drop|^rearrange$", re.IGNORECASE)
_LOOKING = frozenset("shape size dtype device dim ndim amax max expand_as view_as type_as zeros_like finfo".split())


@dataclass(frozen=True)
class Attention:
    """A softmax of the product `first`, of queries and turned keys, that weighs values in the product `last`.

    It is over `axis` of `scores`: the last one, if that is 2 or 3 and there are no more. `steps` change the scores in
    between, `kept` the weights, by dropout, a cast or a view; `weights` is the factor of the last product that these
    end in.
    """

    softmax: ast.Call
    scores: ast.expr
    axis: int
    first: ast.expr
    last: ast.expr
    steps: tuple[ast.AST, ...]
    kept: tuple[ast.AST, ...]
    weights: ast.expr


def attentions(program: Program) -> Iterator[Attention]:
    """Each attention of which nothing else reads the scores or the weights, by its first softmax."""
    seen = set[ast.expr]()
    for call in program.of_type(ast.Call):
        softened, axis = _softened(program, call) or (None, -1)
        scores = _scores(program, softened, frozenset()) if softened is not None else []
        weights = _weights(program, call) if scores else []
        products = [{each for each in nodes if factors(program, each)} for nodes in (scores, weights)]
        if any(len(each) != 1 for each in products) or products[0] <= seen or _is_read_elsewhere(program, scores):
            continue
        (first,), (last,) = products
        rank = program.get(Shapes).shape(softened).rank if softened is not None else None
        if rank is not None and axis not in (-1, rank - 1):
            continue  # a softmax over the queries
        if isinstance(first, ast.expr) and isinstance(last, ast.expr) and softened is not None:
            seen.add(first)
            steps = tuple(each for each in scores if each is not first and not isinstance(each, ast.Name))
            kept = tuple(each for each in weights if each not in (call, last) and not isinstance(each, ast.Name))
            factor = next(each for each in factors(program, last) or () if each in weights)
            yield Attention(call, softened, axis, first, last, steps, tuple(dict.fromkeys(kept)), factor)


def factors(program: Program, node: ast.AST | None) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return None if program.value(node).kind is Kind.NUMPY else (node.left, node.right)
    made = operation(program, node) if node is not None else None
    if made is None or made.tensor is None or not made.does.does("matmul"):
        return None
    parts = [*made.arguments] if made.name in ("einsum", "baddbmm") else [made.tensor, *made.arguments]
    parts = parts[0].elts if len(parts) == 1 and isinstance(parts[0], ast.List | ast.Tuple) else parts
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _softened(program: Program, call: ast.Call) -> tuple[ast.expr, int] | None:
    """What the call takes the softmax of, and over which axis, perhaps the last; None for other calls."""
    made = operation(program, call) if getattr(call.func, "attr", "softmax") == "softmax" else None
    found, dim = (made.tensor, made.dim) if made is not None and made.name == "softmax" else (None, None)
    if found is None and program.value(call.func).name in ("torch.nn.Softmax", "torch.nn.Sequential") and call.args:
        modules = program.get(Origins).calls(call.func)
        softmax = modules[0] if len(modules) == 1 else call
        if program.qualified(softmax.func) == "torch.nn.Sequential" and softmax.args:
            softmax = softmax.args[0] if isinstance(softmax.args[0], ast.Call) else call  # dropout stands behind
        is_softmax = program.qualified(softmax.func) == "torch.nn.Softmax"
        found, dim = call.args[0], bind(softmax, ("dim",)).get("dim") if is_softmax else None
    axis = integer(dim)
    return (found, axis) if found is not None and axis in (-1, 2, 3) else None


def _scores(program: Program, node: ast.AST, seen: frozenset[ast.AST]) -> list[ast.AST]:
    """The nodes through which `node` is a product, scaled, masked, cast or added to; none if it may be another."""
    if pair := factors(program, node):
        return [] if path_of(pair[1]).startswith("self.") else [node]
    if isinstance(node, ast.Name):
        bound = program.get(Flow).graph(node).reaching(node)
        sources = [_given(program, each) for each in sorted(bound - seen, key=_place)]
        found = [_scores(program, each, seen | bound) if each is not None else [] for each in sources]
        return [node, *bound, *itertools.chain(*found)] if bound and all(found) else []
    found = [_scores(program, each, seen) for each in _carried(program, node)]
    return next(([node, *each] for each in found if each), [])


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _given(program: Program, name: ast.AST) -> ast.AST | None:
    statement = program.parent(name)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return statement.value
    return statement if isinstance(statement, ast.AugAssign) else None


def _carried(program: Program, node: ast.AST) -> list[ast.expr]:
    """The operands of `node`, one of which may be scores that it scales, masks, casts, or adds to."""
    if isinstance(node, ast.AugAssign | ast.BinOp):
        if not isinstance(node.op, ast.Mult | ast.Div | ast.Add | ast.Sub):
            return []
        return [node.target] if isinstance(node, ast.AugAssign) else [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    made = operation(program, node)
    if made is not None and made.name in _SCORED and made.tensor is not None:
        return [*made.arguments] if made.name == "where" else [made.tensor]
    is_biasing = made is None and _BIASES.search(path_of(node.func).rpartition(".")[2])
    return node.args[:1] if is_biasing or program.qualified(node.func) == "einops.rearrange" else []


def _weights(program: Program, node: ast.expr) -> list[ast.AST]:
    """The nodes through which `node` weighs values, and is read by nobody else; none otherwise."""
    found: list[ast.AST] = []
    for reader in _readers(program, node):
        parent = program.parent(reader)
        parent = program.parent(parent) if isinstance(parent, ast.Attribute | ast.List | ast.Tuple) else parent
        pair = factors(program, parent) or ()
        if parent is not None and reader in pair and not any(path_of(each).startswith("self.") for each in pair):
            found += [reader, parent]
            continue
        further = _weights(program, parent) if isinstance(parent, ast.expr) and _keeps(program, parent, reader) else []
        if parent is None or not further:
            return []
        found += [parent, *further]
    return found


def _readers(program: Program, node: ast.expr) -> list[ast.expr]:
    statement = program.parent(node)
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return [node]
    targets = [target for target, _ in bindings_of(statement)]
    graph = program.get(Flow).graph(node)
    if not isinstance(targets[0], ast.Name) or graph.is_shared(targets[0].id) or len(targets) > 1:
        return []
    return [each for each in graph.uses.get(targets[0], ()) if not _is_look(program, each)]


def _keeps(program: Program, node: ast.expr, weights: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    made = operation(program, node)
    if made is not None and made.name in _KEPT:
        return made.tensor is weights
    name = program.qualified(node.func) or program.value(node.func).name or path_of(node.func)
    return node.args[:1] == [weights] and bool(_DROPPING.search(name.rpartition(".")[2]))


def _is_look(program: Program, name: ast.Name) -> bool:
    parent = program.parent(name)
    call = parent if isinstance(parent, ast.Call) and name in parent.args else None
    return (path_of(call.func) if call is not None else getattr(parent, "attr", "")).rpartition(".")[2] in _LOOKING


def _is_read_elsewhere(program: Program, scores: list[ast.AST]) -> bool:
    for bound in (each for each in scores if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)):
        for use in program.get(Flow).graph(bound).uses.get(bound, ()):
            parent = program.parent(use)
            call = program.parent(parent) if isinstance(parent, ast.Attribute) else parent
            is_part = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store) and parent.value is use
            outer = program.parent(call) if call is not None else None
            is_changed = is_part or (isinstance(parent, ast.Attribute) and isinstance(outer, ast.Expr))
            is_softened = isinstance(call, ast.Call) and (_softened(program, call) or [None])[0] is use
            if not (use in scores or is_changed or is_softened or _is_look(program, use)):
                return True
    return False
