"""The IR: which values reach which names, what loops carry, and what runs after what."""

from __future__ import annotations

import ast
import sys

import pytest

from perflint.analysis.ir.flow import lower
from perflint.analysis.ir.graph import Definition, Graph, Outer


def _graph(text: str) -> Graph:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    return lower(function, lambda manager: "suppress" in ast.dump(manager))


def _reaching(text: str, name: str = "x") -> list[int | None]:
    """The lines of the definitions that reach the last read of `name`; None stands for a value from outside."""
    graph = _graph(text)
    assert isinstance(graph.scope, ast.FunctionDef)
    reads = [
        n for n in ast.walk(graph.scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    last = max(reads, key=lambda node: (node.lineno, node.col_offset))
    lines = [value.node.lineno if isinstance(value, Definition) else None for value in graph.definitions(last)]  # type: ignore[attr-defined]
    return sorted(lines, key=lambda line: line or 0)


REACHING = {
    "a branch": ("def f(c):\n x = 1\n if c:\n  x = 2\n return x", [2, 4]),
    "both branches": ("def f(c):\n if c:\n  x = 1\n else:\n  x = 2\n return x", [3, 5]),
    "a loop": ("def f(c):\n x = 1\n for i in c:\n  g(x)\n  x = 2", [2, 5]),
    "a loop that is left": (
        "def f(c):\n x = 1\n while c():\n  x = 2\n  if c:\n   break\n  x = 3\n return x",
        [2, 4, 7],
    ),
    "no way around an endless loop": ("def f(c):\n x = 1\n while True:\n  x = 2\n  if c:\n   break\n return x", [4]),
    "the else of a loop": ("def f(c):\n for x in c:\n  pass\n else:\n  x = 5\n return x", [5]),
    "an exception": ("def f(c):\n x = 1\n try:\n  x = 2\n  c()\n  x = 3\n except E:\n  return x", [2, 4, 6]),
    "a finally": ("def f(c):\n x = 1\n try:\n  x = 2\n  c()\n finally:\n  g(x)", [2, 4]),
    "a break through a finally": (
        "def f(c):\n x = 0\n for i in c:\n  try:\n   x = 1\n   break\n  finally:\n   c()\n return x", [2, 5]),
    "an exception that is suppressed": ("def f(c):\n x = 1\n with suppress(E):\n  x = 2\n return x", [2, 4]),
    "a context manager": ("def f(c):\n x = 1\n with c as x:\n  pass\n return x", [3]),
    "a case": ("def f(c):\n x = 1\n match c:\n  case 1:\n   x = 2\n  case 2:\n   x = 3\n return x", [2, 5, 7]),
    "cases of which one always matches": (
        "def f(c):\n match c:\n  case 1:\n   x = 2\n  case _:\n   x = 3\n return x",
        [4, 6],
    ),
    "a capture": ("def f(c):\n match c:\n  case [x, *_]:\n   return x", [3]),
    "a walrus in a condition": ("def f(c):\n x = 1\n if c and (x := 2):\n  pass\n return x", [2, 3]),
    "a walrus in a loop's test": ("def f(c):\n while (x := c()) > 0:\n  x = c(x)\n return x", [2]),
    "a walrus in a comprehension": ("def f(c):\n x = 1\n y = [(x := i) for i in c]\n return x", [2, 3]),
    "targets of a comprehension": ("def f(c):\n x = 1\n y = [x for x in c]\n return x", [2]),
    "a class body": ("def f(c):\n x = 1\n class A:\n  x = 2\n return x", [2]),
    "a parameter": ("def f(x):\n return x", [1]),
    "an augmented assignment": ("def f(c):\n x = 1\n x += 1\n return x", [3]),
    "code that is never reached": ("def f(c):\n if c:\n  raise E\n  x = 1\n else:\n  x = 2\n return x", [6]),
    "a variable that an inner function rebinds": (
        "def f(c):\n x = 1\n def g():\n  nonlocal x\n  x = 2\n g()\n return x", [None]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "lines"), REACHING.values(), ids=REACHING)
def test_the_definitions_that_reach_a_read(text: str, lines: list[int | None]) -> None:
    assert _reaching(text) == lines


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is new in Python 3.11")
def test_except_star_is_an_exception_like_others() -> None:
    assert _reaching("def f(c):\n x = 1\n try:\n  x = 2\n  c()\n except* E:\n  return x") == [2, 4]


def test_a_loop_carries_what_it_rebinds_and_reads() -> None:
    graph = _graph("def f(xs, h):\n for x in xs:\n  y = x + h\n  h = y\n return h")
    assert isinstance(graph.scope, ast.FunctionDef)
    loop = graph.scope.body[0]
    (phi,) = graph.carried(loop)
    assert phi.name == "h"
    (start,), (update,) = graph.initial_values(loop, phi), graph.back_edge_values(loop, phi)
    assert isinstance(start, Definition) and isinstance(start.node, ast.arg)
    assert isinstance(update, Definition) and isinstance(update.source, ast.Name) and update.source.id == "y"


def test_what_no_iteration_rebinds_is_not_carried() -> None:
    graph = _graph("def f(xs, h):\n for x in xs:\n  y = x + h\n return h")
    assert isinstance(graph.scope, ast.FunctionDef)
    assert graph.carried(graph.scope.body[0]) == []


def test_code_runs_behind_another_also_by_the_next_iteration() -> None:
    graph = _graph("def f(xs):\n for x in xs:\n  a()\n  b()\n c()")
    calls = {n.func.id: n for n in graph.places if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    a, b, c = calls["a"], calls["b"], calls["c"]
    assert graph.runs_after(b, a) and graph.runs_after(a, b) and graph.runs_after(c, a)
    assert not graph.runs_after(a, c)
    assert graph.reaches(b, c, avoiding=a) and not graph.reaches(b, b, avoiding=a)
    assert graph.dominates(a, b) and not graph.dominates(b, c)


def test_long_code_does_not_exhaust_the_stack() -> None:
    branches = "".join(f" if c({n}):\n  x = {n}\n" for n in range(3000))
    graph = _graph(f"def f(c):\n x = 0\n{branches} return x")
    last = [n for n in graph.values if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id == "x"]
    assert len(graph.definitions(last[-1])) == 3001


def test_a_name_that_nothing_binds_is_an_outer_value() -> None:
    graph = _graph("def f():\n return g")
    (name,) = [node for node in graph.values if isinstance(node, ast.Name)]
    assert isinstance(graph.value(name), Outer)
