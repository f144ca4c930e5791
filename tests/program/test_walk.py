"""Every program that Python parses can be walked."""

from __future__ import annotations

import ast

from perflint.analysis.program import Program

MATCHES = """\
match command:
    case {"go": place, **rest}:
        pass
    case None | True | "stop":
        pass
    case Point(1, y=Point(x=0)):
        pass
    case [first, *others] if first.item():
        pass
"""


def test_patterns_of_any_form_are_walked() -> None:
    program = Program(MATCHES)
    (call,) = program.of_type(ast.Call)
    assert program.segment(call) == "first.item()"
    assert isinstance(program.parent(call), ast.match_case)


def test_what_is_known_of_a_program_is_worked_out_once() -> None:
    asked: list[Program] = []
    program = Program("x = 1\n")

    def length(of: Program) -> int:
        asked.append(of)
        return len(of.text)

    assert (program.get(length), program.get(length)) == (6, 6)
    assert asked == [program]
