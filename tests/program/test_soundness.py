"""What the Program claims of a value holds when the program runs: every expression of the fixtures is probed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perflint.analysis.program import Kind, Program, Value

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted(
    path
    for folder in ("fixtures", "tests/gpu/programs")
    for path in (ROOT / folder).rglob("*.py")
    if "\ndef run(" in path.read_text(encoding="utf-8")
)
_PROBED = (
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Subscript,
    ast.List,
    ast.Tuple,
    ast.ListComp,
)
_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TENSOR: (torch.Tensor,),
    Kind.NUMBER: (bool, int, float, complex, np.generic),
    Kind.STRING: (str, bytes),
    Kind.MODULE: (torch.nn.Module,),
    Kind.LOADER: (Iterable,),  # whatever yields batches: also what enumerates a loader
    Kind.DATASET: (torch.utils.data.Dataset,),
    Kind.OPTIMIZER: (torch.optim.Optimizer,),
    Kind.NUMPY: (np.ndarray, np.generic, bool, int, float),
    Kind.SEQUENCE: (Iterable,),
    Kind.MAPPING: (dict,),
    Kind.CLASS: (type,),
}


class Probe(ast.NodeTransformer):
    """Wraps expressions that are read in calls of `__probe__`."""

    def __init__(self) -> None:
        self.nodes: list[ast.expr] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.body = [self.visit(statement) for statement in node.body]  # type: ignore[misc]
            return node
        probed = isinstance(node, _PROBED) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        original = node
        if isinstance(node, ast.AugAssign):
            node.value = self.visit(node.value)  # type: ignore[assignment]
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            return node
        node = self.generic_visit(node)
        if not probed:
            return node
        self.nodes.append(original)  # type: ignore[arg-type]
        index = ast.Constant(len(self.nodes) - 1)
        return ast.copy_location(ast.Call(ast.Name("__probe__", ast.Load()), [index, node], []), original)  # type: ignore[list-item]


def contradicts(claim: Value, actual: Any) -> bool:
    """Is `actual` something else than what was claimed for sure?"""
    types = _TYPES.get(claim.kind)
    if types is None or not claim.sure or actual is None:
        return False
    if not isinstance(actual, types):
        return True
    if claim.kind is Kind.TENSOR and claim.dtype == "bool":
        return bool(getattr(actual, "dtype", None) != torch.bool)
    return claim.is_literal and claim.literal != actual


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_claim_is_contradicted_by_a_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    program = Program(text)
    probe = Probe()
    copy = ast.parse(text)
    claims = {
        (type(node), node.lineno, node.col_offset, node.end_col_offset): program.value(node)
        for node in program.of_type(*_PROBED)
    }
    probe.visit(copy)
    ast.fix_missing_locations(copy)
    wrong: set[str] = set()

    def check(index: int, actual: Any) -> Any:
        node = probe.nodes[index]
        claim = claims.get((type(node), node.lineno, node.col_offset, node.end_col_offset))
        if claim is not None and contradicts(claim, actual):
            wrong.add(f"line {node.lineno}: claimed {claim.kind.value}, got {type(actual).__name__}")
        return actual

    module = ModuleType(f"probed_{path.stem}")
    vars(module).update(__probe__=check, __file__=str(path))
    sys.modules[module.__name__] = module
    try:
        exec(compile(copy, str(path), "exec"), vars(module))
        module.run()
    finally:
        del sys.modules[module.__name__]
    assert not wrong
    assert len(probe.nodes) > 10
