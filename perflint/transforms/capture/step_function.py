"""Makes a loop that ends by a test a function of one step, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.syntax.edits import Edit
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.carried import Names, carried
from perflint.transforms.capture.course import Course, Exit, course_of
from perflint.transforms.capture.guarded import check_guarded
from perflint.transforms.capture.obstacles import Obstacles
from perflint.transforms.capture.outputs import outputs_of
from perflint.transforms.capture.results import Collected, collected
from perflint.transforms.capture.skipped import check_skipped
from perflint.transforms.capture.written import carried_and_written, check_written_behind
from perflint.transforms.text import on_one_line, whole_lines

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_WIDTH = 88  # of a line, from which on it is broken


def stepped(program: Program, loop: PlainLoop, end: Exit, name: str) -> tuple[Edit, ...]:
    """The edits that make the loop a call of the function `name`, graphed_loop; raises Blocked."""
    if loop.orelse:
        raise Blocked("the loop's `else` runs only if no `break` does: test behind the loop instead", loop.orelse[0])
    if not _is_quiet(program, loop, set()):
        raise Blocked(
            "the test is read on the host, and gradients may be recorded: put the loop under `torch.no_grad()`",
            end.test,
        )
    course = course_of(program, loop, end)
    check_guarded(program, loop, course)
    for node in own_nodes(loop):
        if isinstance(node, ast.Break) and program.parent(node) in course.exits:
            continue
        is_super = isinstance(node, ast.Name) and node.id == "super"
        if is_super or isinstance(node, ast.Break | ast.Continue | ast.Return):
            raise Blocked("it is left, or goes on, at several places: end it by one test", node)
    found = collected(program, loop, course.exits)
    check_skipped(program, loop, course, found)
    gone = {each.statement: each.value for each in found}
    copied = carried_and_written(program, loop, gone)
    kept = [each for each in loop.body if each not in (*course.exits, *course.counting)]
    obstacles = Obstacles(program, quiet=True, strict=True, owned=frozenset(copied))
    obstacles.check([gone.get(each, each) for each in kept], loop)
    return tuple(sorted(_Rewriting(program, loop, course, found, copied, name).edits()))


def _is_quiet(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Are no gradients recorded there, or wherever this file calls the function around it?"""
    function = program.function_of(node)
    if program.without_gradients(node):
        return True
    sites = program.call_sites(function) if function is not None and function not in seen else []
    seen.add(function or node)
    return bool(sites) and all(_is_quiet(program, site, seen) for site in sites)


class _Rewriting:
    """The loop's body becomes a function of one step, at the same place and as deep as it was."""

    def __init__(
        self, program: Program, loop: PlainLoop, course: Course, found: list[Collected], copied: list[str], name: str
    ) -> None:
        self._program, self._loop, self._course, self._name = program, loop, course, name
        self._names = Names(program, loop)
        self._state = carried(program, loop, course, found, self._names)
        self._copied = copied
        collected_names = {each.name for each in found}
        check_written_behind(program, loop, self._names.stored | collected_names, self._names.behind)
        self._carried = self._names.taken.fresh("carried")
        self._outputs = outputs_of(program, loop, course, found, self._names)
        self._inner = program.source.indentation(loop.body[0].lineno)
        self._indent = program.source.indentation(loop.lineno)

    def edits(self) -> Iterator[Edit]:
        """All edits."""
        step = self._names.taken.fresh("step")
        number, first_lines = self._number()
        for statement, text in self._outputs.inside.items():
            gone = whole_lines(self._program, statement)
            yield Edit(gone.start, gone.end, (f"{self._inner}{text}\n" if text else "") + gone.text)
        for statement in (*self._empty(), *self._counting()):
            yield whole_lines(self._program, statement)
        yield from self._outputs.stacks.edits if self._outputs.stacks else ()
        yield self._head(f"def {step}({number}, {self._given()})")
        yield from self._first_lines(first_lines)
        yield self._call(step)

    def _empty(self) -> tuple[ast.stmt, ...]:
        return self._outputs.stacks.empty if self._outputs.stacks else ()

    def _counting(self) -> Iterator[ast.stmt]:
        """The lines that only count: those behind which a step doesn't look at the count."""
        for each in self._course.counting:
            if not self._reads(self._loop.body[self._loop.body.index(each) + 1 :]):
                yield each

    def _reads(self, statements: list[ast.stmt]) -> bool:
        """Does a step look at its number there?"""
        kept = [each for each in statements if each not in (*self._course.exits, *self._course.counting)]
        nodes = (node for each in [*kept, self._course.end.test] for node in own_nodes(each))
        return any(isinstance(node, ast.Name) and node.id == self._course.index for node in nodes)

    def _number(self) -> tuple[str, list[str]]:
        """What the function calls the number of the step, and the line that makes it what the loop counts."""
        index, first = self._course.index, self._course.first
        if not self._reads(self._loop.body) or first == "0":
            return index, []
        if not first:
            raise Blocked(
                f"what `{index}` counts from is not known: set it to a number right in front of the loop", self._loop
            )
        number = self._names.taken.fresh("index")
        return number, [f"{index} = {number} + {first}"]

    def _head(self, text: str) -> Edit:
        source, loop = self._program.source, self._loop
        end, first = self._head_end(), source.line_start(loop.body[0].lineno)
        if first < end or self._program.text[end:first].lstrip()[:1] != ":":
            raise Blocked("its head is written in another way: put it on one line", loop)
        return Edit(source.line_start(loop.lineno), end, f"{self._blank()}{self._indent}{text}")

    def _head_end(self) -> int:
        """Where the head ends, its brackets included."""
        loop, text = self._loop, self._program.text
        end = self._program.span(loop.iter if isinstance(loop, ast.For) else loop.test)[1]
        while text[end : end + 1] and text[end] in ") \r\n":
            end += 1
        return end

    def _blank(self) -> str:
        """A line between what precedes the loop and the function, unless there is one or nothing precedes it."""
        block = self._program.block_of(self._loop)
        before = [each for each in block[: block.index(self._loop)] if each not in self._empty()]
        is_parted = not self._program.source.line_text(self._loop.lineno - 1).strip()
        return "" if is_parted or not before else "\n"

    def _given(self) -> str:
        return self._state[0] if len(self._state) == 1 else self._carried

    def _first_lines(self, lines: list[str]) -> Iterator[Edit]:
        """A step takes its state apart, and makes copies of what it writes to in place."""
        unpacked = [f"{', '.join(self._state)} = {self._carried}"] if len(self._state) > 1 else []
        copies = [f"{each} = {each}.clone()" for each in self._copied]
        text = "".join(f"{self._inner}{each}\n" for each in (*unpacked, *lines, *copies))
        if text:
            head = self._program.source.position(self._head_end())[0]
            start = self._program.source.line_end(head)
            yield Edit(start, start, text)

    def _call(self, step: str) -> Edit:
        """What a step returns, the call, and what is done with the results."""
        place = self._program.source.line_end(self._last_line())
        broken = "" if self._program.text[:place].endswith(("\n", "\r")) else "\n"
        returned = f"{broken}{self._inner}return {_tuple(self._state)}, {_tuple(self._outputs.values)}\n\n"
        entry, steps, asked = self._course.entry if not self._outputs.stacks else "", self._course.steps, ""
        if entry and self._course.once:
            most = self._names.taken.fresh("most")
            entry, steps, asked = f"{most} > 0", most, f"{self._indent}{most} = {on_one_line(steps)}\n"
        indent = self._inner if entry else self._indent
        test = f"{self._indent}if {on_one_line(entry)}:\n" if entry else ""
        behind = "".join(f"{indent}{each}\n" for each in self._outputs.behind)
        return Edit(place, place, f"{returned}{asked}{test}{self._assignment(step, steps, indent)}\n{behind}")

    def _assignment(self, step: str, steps: str, indent: str) -> str:
        outputs, state = self._outputs, _tuple(self._state)
        given = [step, state, steps, f"until={outputs.until}"]
        given += [f"dim={outputs.dim}"] if outputs.dim != "0" else []
        if self._names.behind & set(self._state):
            targets = f"{state}, {_tuple(outputs.results)}"
        else:
            targets = ", ".join(outputs.results)
            given.append("last_state=False")
        return _broken(f"{indent}{targets} = {self._name}(", given, indent, self._inner[len(self._indent) :])

    def _last_line(self) -> int:
        """The loop's last line, which may hold a comment."""
        source, line = self._program.source, self._loop.body[-1].end_lineno or self._loop.lineno
        while line < source.line_count and source.line_text(line + 1).startswith(f"{self._inner}#"):
            line += 1
        return line


def _broken(head: str, arguments: list[str], indent: str, deeper: str) -> str:
    """A call: on one line, its arguments on one of their own, or each on one, as they fit."""
    text = ", ".join(arguments)
    if len(head) + len(text) < _WIDTH:
        return f"{head}{text})"
    if len(indent + deeper) + len(text) > _WIDTH:
        text = f",\n{indent}{deeper}".join(arguments) + ","
    return f"{head}\n{indent}{deeper}{text}\n{indent})"


def _tuple(parts: list[str] | tuple[str, ...]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
