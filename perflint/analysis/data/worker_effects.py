"""Finds why the code that workers run is not proved to have the same effects there."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from perflint.analysis.data.effects import Effects
from perflint.analysis.data.loaders import Loaders
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import parameters_of
from perflint.syntax.walk import Function, own_nodes, stores

# State of the process, which differs in a worker, and effects outside of it.
_OF_PROCESS = re.compile(
    r"builtins\.(print|input|exec|eval|globals|breakpoint)"
    r"|os\.(?!(path|listdir|scandir|walk|fspath|stat|sep|PathLike)\b).*"
    r"|torch\.((get|set|use)_.*|save|is_grad_enabled)|torch\.utils\.data\.get_worker_info"
    r"|(threading|multiprocessing|inspect|logging|warnings)\..*"
    r"|(numpy|pickle|json|cv2|imageio|yaml)\.(\w+\.)*(dump|save\w*|imwrite|imsave|imshow|set\w+|get\w+)"
)
_STREAMS = re.compile(r"io\.(BytesIO|StringIO|open)|builtins\.(open|iter|zip|map|filter|enumerate)|itertools\..*")
_WEIGHTS = frozenset({"weight", "bias"})
_READ_ON = "items advance the stream or iterator {}, and every worker would have its own"
_CALLED_BY_NAME = frozenset(
    {"__init__", "__new__", "__call__", "__getitem__", "__enter__", "__exit__", "__post_init__"}
)


def unproved_effect(program: Program, functions: Iterable[Function]) -> str:
    """Why `functions` may have other effects in workers than in the training process; empty if proved not to."""
    run = reached(program, functions)
    found = (_held(program, run), _of_process(program, run), _read_on(program, run), _unnamed(program, run))
    return next(filter(None, found), "")


def reached(program: Program, functions: Iterable[Function]) -> list[Function]:
    """The functions of this file that calling `functions` may run, themselves among them."""
    found, stack = dict[Function, None](), list(functions)
    while stack:
        function = stack.pop()
        if function not in found:
            found[function] = None
            calls = (node for node in own_nodes(function) if isinstance(node, ast.Call))
            stack += (callee for call in calls for callee in program.get(Effects).callees(call))
    return list(found)


def held_in(functions: Iterable[Function]) -> Iterator[ast.Attribute | ast.Name]:
    """The attributes of their own objects, and the variables of others, that `functions` read."""
    for function in functions:
        given = {parameter.arg for parameter in parameters_of(function)}
        for node in own_nodes(function):
            if isinstance(node, ast.Name):
                yield from () if node.id in given or stores(function, node.id) else (node,)
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
                yield node


def is_of_model(program: Program, node: ast.expr) -> bool:
    """Is the value of `node` a model, a container of one, or something that changes as one is trained?"""
    origins = program.get(Loaders).origins
    made = [node, *(each for each in origins.of(node) if isinstance(each, ast.expr))]
    same = {each for one in made for each in program.get(Effects).same(one, parts=True)}
    of_weights = any(attribute in _WEIGHTS for _, attribute in same)  # other attributes may be plain numbers
    parts = [part for part, attribute in same if of_weights or not attribute]
    return any(program.value(each).kind is Kind.MODULE for part in parts for each in (part, *origins.of(part)))


def _held(program: Program, functions: Collection[Function]) -> str:
    """A model, whose weights would stay in the workers as they were, or a stream that is read from."""
    for node in held_in(functions):
        if is_of_model(program, node):
            return (
                f"{program.segment(node)} is a model or a part of one, which workers would keep as it is at their start"
            )
        origins = program.get(Loaders).origins.of(node)
        makers = [program.qualified(each.func) for each in origins if isinstance(each, ast.Call)]
        if any(map(_STREAMS.fullmatch, makers)):
            return _READ_ON.format(program.segment(node))
    return ""


def _of_process(program: Program, functions: Collection[Function]) -> str:
    for node in (node for function in functions for node in own_nodes(function)):
        if not isinstance(node, ast.Attribute | ast.Name | ast.Call):
            continue
        name = "" if isinstance(node, ast.Call) else program.qualified(node)
        is_of_process = bool(_OF_PROCESS.fullmatch(name)) or _is_setting(program, node)
        if is_of_process or (isinstance(node, ast.Call) and _opens_to_write(node)):
            what = program.segment(node.func if isinstance(node, ast.Call) else node)
            return f"line {node.lineno} uses {what}, which differs in workers, or has effects outside of them"
    return ""


def _is_setting(program: Program, node: ast.AST) -> bool:
    """Is it an attribute of a module, or of something else of a library, that is assigned?"""
    is_assigned = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    return is_assigned and isinstance(node, ast.Attribute) and program.value(node.value).kind is Kind.LIBRARY


def _opens_to_write(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return name == "open" and any(re.fullmatch(r"[rbt]*[wax+][wabtx+]*", text) for text in texts)


def _read_on(program: Program, functions: Collection[Function]) -> str:
    found = (path for function in functions for path in program.get(Effects).read_on(function))
    path = next(found, "")
    return _READ_ON.format(path) if path else ""


def _unnamed(program: Program, functions: Collection[Function]) -> str:
    """What a property writes to, or a special method that is called implicitly."""
    read = {node.attr for each in functions for node in own_nodes(each) if isinstance(node, ast.Attribute)}
    for method in program.of_type(ast.FunctionDef):
        is_property = method.name in read and any(_names_property(each) for each in method.decorator_list)
        is_special = method.name.startswith("__") and method.name not in _CALLED_BY_NAME
        if is_property or (is_special and _is_held(program, method, functions)):
            for path in program.get(Effects).left_behind(method):
                return f"{method.name} changes {path}, and every worker would have its own"
    return ""


def _names_property(decorator: ast.expr) -> bool:
    return "property" in ast.dump(decorator)


def _is_held(program: Program, method: Function, functions: Collection[Function]) -> bool:
    """Is the method one of an object that `functions` use and do not make?"""
    owner = program.class_of(method)
    return owner is not None and any(
        isinstance(origin, ast.Call) and program.value(origin.func).node is owner.node
        for node in held_in(functions)
        for origin in program.get(Loaders).origins.of(node)
    )
