"""Nothing but perflint.torch_ops lists what torch's operations are called."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

from perflint import torch_ops

_ROOT = Path(__file__).parents[2]
_FILES = sorted(
    path
    for folder in ("perflint", "rules")
    for path in (_ROOT / folder).rglob("*.py")
    if not path.is_relative_to(_ROOT / "perflint" / "torch_ops")
)
_FEW = 3  # names of torch's operations, and not of Python's functions, that make a list of such

# Files with lists that look like it. Each list is of something else, as said.
_ALLOWED = {
    "perflint/analysis/autograd/graph_use.py": "attributes, what leads out of a graph, and methods of lists",
    "perflint/analysis/data/callables.py": "methods of strings, lists, arrays, pictures and generators of numpy",
    "perflint/analysis/memory/consumers.py": "beginnings of names that only tensors' methods have",
    "perflint/analysis/memory/roles.py": "functions of numpy and Python that view",
    "perflint/analysis/memory/implicit.py": "methods of modules that replace what they hold",
    "perflint/analysis/memory/special_methods.py": "special methods of Python's",
    "perflint/runtime/scope.py": "special methods of Python's",
    "perflint/analysis/made.py": "methods that give a tensor the shape of their argument",
    "perflint/analysis/modules.py": "methods of modules, which move or return them",
    "perflint/analysis/values/hints.py": "methods of arrays, modules and others, which tell of no tensor",
    "perflint/analysis/values/calls.py": "what is special about a call, by function",
    "perflint/analysis/values/methods.py": "methods of modules, and names of types",
    "perflint/analysis/values/attention.py": "the steps between the products of attention, by operation",
    "perflint/analysis/values/codes.py": "methods that objects of all kinds have",
    "perflint/analysis/values/shape_rules.py": "the shape of a result, by operation",
    "perflint/profile/roofline.py": "formulas of work and bytes, by the name of a kernel's operation",
    "perflint/transforms/remedy.py": "messages, by kind of sync",
    "perflint/transforms/foreach.py": "the methods that torch._foreach_* has, with their arguments",
    "perflint/transforms/host_code.py": "links of a chain that an edit takes apart",
    "perflint/transforms/capture/calls.py": "functions of other libraries that only compute, with a few of torch's",
    "perflint/transforms/capture/step_obstacles.py": "functions of a step that leave nothing behind on the host",
    "perflint/transforms/filled.py": "names of parameters",
    "perflint/verify/agent/journal.py": "functions that write files, and which argument names one",
    "perflint/verify/agent/determinism.py": "functions that seed generators",
    "rules/loader_restarts_workers.py": "methods of lists and dicts that only read",
    "perflint/analysis/loops/parameters.py": "how programs spell updates of parameters, and what they do beside",
    "rules/repeat_not_broadcast/__init__.py": "words in the text of a file, before it is parsed",
}


def _names() -> frozenset[str]:
    table = torch_ops.table()
    functions = {name.rpartition(".")[2] for name in table["functions"]}
    return frozenset({*functions, *table["methods"], *table["attributes"]} - set(dir(builtins)))


def _collections(tree: ast.AST) -> Iterator[tuple[ast.expr, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.Tuple | ast.List):
            yield node, _strings(node.elts)
        elif isinstance(node, ast.Dict):
            yield node, _strings(node.keys)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            yield node, [word for text in _strings([node.func.value]) for word in text.split()]


def _strings(nodes: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    return [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _lists(path: Path) -> list[str]:
    names = _names()
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node, words in _collections(ast.parse(path.read_text(encoding="utf-8")))
        if sum(word.rpartition(".")[2] in names for word in words) >= _FEW
    ]


@pytest.mark.parametrize("path", [path.relative_to(_ROOT).as_posix() for path in _FILES])
def test_no_file_lists_names_of_operations(path: str) -> None:
    if path in _ALLOWED:
        pytest.skip(_ALLOWED[path])
    assert _lists(_ROOT / path) == []


@pytest.mark.parametrize("path", _ALLOWED)
def test_what_is_allowed_is_needed(path: str) -> None:
    assert _lists(_ROOT / path)
