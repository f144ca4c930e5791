"""The arguments of a call meet the parameters of what it calls."""

from __future__ import annotations

import ast

from perflint.analysis.program import Program
from perflint.syntax.scopes import Bound, bind


def call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


def texts(bound: Bound) -> dict[str, str]:
    return {name: ast.unparse(value) for name, value in bound.given.items()}


def test_positions_and_keywords_go_to_the_same_parameters() -> None:
    assert texts(bind(call("f(x, dim=1)"), ("tensors", "dim"))) == {"tensors": "x", "dim": "1"}
    assert texts(bind(call("f(dim=1, tensors=x)"), ("tensors", "dim"))) == {"tensors": "x", "dim": "1"}


def test_an_argument_is_asked_for_by_either_of_its_names() -> None:
    assert ast.unparse(bind(call("f(x, axis=1)"), ("tensors", "dim", "axis")).get("dim", "axis") or call("f()")) == "1"


def test_what_no_parameter_takes_is_told_apart() -> None:
    bound = bind(call("f(x, 1, 2, out=y)"), ("tensors", "dim"))
    assert [ast.unparse(each) for each in bound.rest] == ["2"]
    assert [each.arg for each in bound.others] == ["out"]


def test_stars_leave_open_what_stands_behind_them() -> None:
    bound = bind(call("f(x, *more, y)"), ("a", "b", "c"))
    assert texts(bound) == {"a": "x"} and bound.is_open
    assert bind(call("f(x, **more)"), ("a", "b")).is_open


def test_keyword_only_parameters_take_no_position() -> None:
    function = ast.parse("def f(a, *, b): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    bound = bind(call("f(1, 2, b=3)"), function)
    assert texts(bound) == {"a": "1", "b": "3"} and len(bound.rest) == 1


PROGRAM = """
class Box:
    def put(self, item, at=0): ...
    @staticmethod
    def make(size): ...
    @classmethod
    def like(cls, other): ...

box = Box()
box.put(1, at=2)
Box.put(box, 1)
Box.make(3)
Box.like(box)
box.like(box)
put = Box.put
put(box, 1)
"""


def test_methods_get_their_object_only_where_it_is_handed_over() -> None:
    program = Program(PROGRAM)
    puts = [each for each in program.of_type(ast.Call) if program.callee(each) is not None]
    assert [texts(program.arguments(each, callee)) for each in puts if (callee := program.callee(each))] == [
        {"item": "1", "at": "2"},
        {"self": "box", "item": "1"},
        {"size": "3"},
        {"other": "box"},
        {"other": "box"},
        {"self": "box", "item": "1"},
    ]
