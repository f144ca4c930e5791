"""Has a meter add up on the device what it is given, where its numbers are read now and then."""

from __future__ import annotations

import ast
import string
from collections.abc import Collection, Iterator, Mapping

from perflint.analysis.found import Heat
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.program import Program
from perflint.analysis.values.codes import named_functions
from perflint.analysis.values.dtypes import FLOAT, INTEGER, number_kind
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import LOOPS, Function, own_nodes, path_of, receiver_of
from perflint.transforms.accumulate import FLOAT_FORMATS, check_real, has_doubles, is_in_string, shows_as_float
from perflint.transforms.collected import ANY_SHAPE, kept_until, shape_of_one
from perflint.transforms.host_code import read_of
from perflint.transforms.operations import Replace, expression
from perflint.transforms.rewrite import Blocked, rewrite

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_TEXTS = frozenset({"__str__", "__repr__", "__format__"})  # of the meter itself, which nobody asks for


def metered(program: Program, sync: Sync) -> Fix:
    """The fix of `meter.update(loss.item(), n)`; raises Blocked, without a reason where it is something else."""
    read = read_of(program, sync)
    call = program.parent(read.top)
    meter = receiver_of(call) if isinstance(call, ast.Call) and call.args[:1] == [read.top] else None
    if not isinstance(call, ast.Call) or not isinstance(meter, ast.Name) or read.converts_to == "int":
        raise Blocked("")
    kept = _kept_by(program, call) if isinstance(program.parent(call), ast.Expr) else ()
    if not kept or not read.is_scalar:
        raise Blocked("")
    check_real(program, read.base)
    if (kind := number_kind(program, read.base)) == INTEGER:
        raise Blocked(f"`{meter.id}` would count in floats")
    loop = next((each for each in program.ancestors(call) if isinstance(each, LOOPS)), None)
    if loop is None:
        raise Blocked(f"the loop that makes it hot is elsewhere, and `{meter.id}` lives longer than one call")
    wrapped = list(_read_otherwise(program, call, meter, kept))
    kept_as = kept_until(program, read.base, program.statement_of(call), loop)
    suffix = f".detach().double(){shape_of_one(program, read.base)}" if has_doubles(program) else f"{kept_as}.float()"
    safety, title = Safety.ROUNDING, f"have `{meter.id}` add up on the device"
    if shape_of_one(program, read.base):
        safety, title = Safety.BEHAVIOUR, f"{title}{ANY_SHAPE}"
    elif kind != FLOAT and wrapped:
        safety, title = Safety.BEHAVIOUR, f"{title}, if it is given floats"
    made = [Replace(each, expression("float({read})", read=each)) for each in wrapped]
    return Fix(title, safety, rewrite(program, read.replaced(suffix), *made))


def _kept_by(program: Program, call: ast.Call) -> Collection[str]:
    """The attributes of its object in which a method keeps its first argument, of this file or another one."""
    callee = program.callee(call)
    return _kept(program, callee) if callee is not None else program.keeps_elsewhere(call)


def _read_otherwise(
    program: Program, call: ast.Call, meter: ast.Name, kept: Collection[str]
) -> Iterator[ast.Attribute]:
    """The reads of the meter's numbers that have to become floats; raises Blocked where it is used otherwise."""
    graph = program.get(Flow).graph(meter)
    (made, *others) = graph.definitions(meter)
    if others or meter.id in graph.shared or not _is_made(program, made, call):
        raise Blocked(f"`{meter.id}` is not one meter of this function")
    assert isinstance(made, Definition)
    for use in made.uses:
        read = program.parent(use)
        above = program.parent(read) if read is not None else None
        if not isinstance(read, ast.Attribute):
            if not _is_formatted(program, use, kept) and not _is_shown(program, use, made.given, kept):
                raise Blocked(f"line {use.lineno} may read the numbers of `{meter.id}`")
        elif isinstance(above, ast.Call) and above.func is read:
            if not isinstance(program.parent(above), ast.Expr):
                raise Blocked(f"line {use.lineno} uses what `{program.segment(read)}` gives")
        elif read.attr in kept:
            _check_cold(program, read)
            if not isinstance(read.ctx, ast.Load) or is_in_string(program, read):
                raise Blocked(f"line {use.lineno} sets `{program.segment(read)}`, or reads it inside a string")
            if not shows_as_float(program, read) and program.call_of(above, "builtins.float") is None:
                yield read


def _check_cold(program: Program, node: ast.expr) -> None:
    if program.heat(node) is not Heat.ONCE:
        raise Blocked(f"line {node.lineno} reads `{program.segment(node)}` in every iteration")


def _is_made(program: Program, made: object, call: ast.Call) -> bool:
    """Does a call of the class make the object, so that nobody else has it?"""
    given = made.given if isinstance(made, Definition) else None
    method = program.value(call.func)
    if not isinstance(given, ast.Call) or method.owner is None:
        return False
    made_by = program.value(given.func)
    return made_by.node is method.owner.node if made_by.node is not None else made_by.name == method.owner.name


def _is_formatted(program: Program, use: ast.Name, kept: Collection[str]) -> bool:
    """Is it given to `"{loss.avg:.4f}".format(loss=loss)`, now and then, whose fields all show floats?"""
    around = program.parent(use)
    call = program.parent(around) if isinstance(around, ast.keyword) else around
    text = receiver_of(call, "format")
    if not isinstance(call, ast.Call) or not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return False
    _check_cold(program, use)
    if isinstance(around, ast.keyword):
        return bool(around.arg) and _shows_floats(text.value, str(around.arg), kept)
    is_numbered = not any(
        field == "" or str(field)[:1] in ".[" for _, field, _, _ in string.Formatter().parse(text.value)
    )
    return is_numbered and use in call.args and _shows_floats(text.value, str(call.args.index(use)), kept)


def _is_shown(program: Program, use: ast.Name, made: ast.expr | None, kept: Collection[str]) -> bool:
    """Is it handed to what shows it now and then, by the text that its class makes of it, and reads none of `kept`?"""
    around = program.parent(use)
    while isinstance(around, ast.List | ast.Tuple | ast.Dict | ast.Starred | ast.keyword):
        around = program.parent(around)
    shower, init = (program.callee(each) if isinstance(each, ast.Call) else None for each in (around, made))
    of_meter, of_shower = (program.class_around(each) if each is not None else None for each in (init, shower))
    if not isinstance(made, ast.Call) or init is None or of_meter is None or of_shower is None:
        return False
    nodes = list(ast.walk(of_shower))
    if any(program.heat(each) is not Heat.ONCE for each in nodes if isinstance(each, ast.Call | ast.JoinedStr)):
        return False
    for each in program.of_type(ast.Attribute):
        call = program.parent(each)
        is_called = isinstance(call, ast.Call) and call.func is each
        is_read = each.attr in (*kept, "__dict__") and not is_called and program.class_around(each) is not of_meter
        if is_read and (each in nodes or not _is_of_call(program, each.value)):
            return False
    own = [each for each in ast.walk(of_meter) if isinstance(each, ast.Attribute) and _is_of_text(program, each)]
    given = {**_defaults(init), **program.arguments(made, init).given}
    texts = [
        _written(program, receiver_of(each, "format"), given)
        for each in ast.walk(of_meter)
        if receiver_of(each, "format")
    ]
    return all(shows_as_float(program, each) for each in own if path_of(each).removeprefix("self.") in kept) and all(
        text is not None and _shows_floats(text, "", kept) for text in texts
    )


def _is_of_call(program: Program, node: ast.expr) -> bool:
    """Is it a variable that holds what a call has made?"""
    found = program.get(Flow).graph(node).definitions(node) if isinstance(node, ast.Name) else ()
    return bool(found) and all(isinstance(each, Definition) and isinstance(each.given, ast.Call) for each in found)


def _is_of_text(program: Program, node: ast.AST) -> bool:
    return getattr(program.function_of(node), "name", "") in _TEXTS


def _defaults(function: Function) -> dict[str, ast.expr]:
    arguments = function.args.args
    return {each.arg: value for each, value in zip(reversed(arguments), reversed(function.args.defaults), strict=False)}


def _written(program: Program, node: ast.expr | None, given: Mapping[str, ast.expr]) -> str | None:
    """The text that a method of an object writes down, whose attributes are what its constructor is given."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_written(program, each, given) for each in (node.left, node.right)]
        return "".join(map(str, parts)) if None not in parts else None
    if isinstance(node, ast.Attribute) and path_of(node) == f"self.{node.attr}":
        return _written(program, given.get(node.attr), given)
    found = program.get(Flow).graph(node).definitions(node) if isinstance(node, ast.Name) else ()
    (made, *others) = [*found, None]
    return _written(program, made.given, given) if isinstance(made, Definition) and len(others) == 1 else None


def _shows_floats(text: str, name: str, kept: Collection[str]) -> bool:
    """Does a template show all the numbers that are `kept`, of what it knows by that name, as floats, and not that?"""
    prefix = f"{name}." if name else ""
    for _, field, form, conversion in string.Formatter().parse(text):
        is_kept = field is not None and field.startswith(prefix) and field.removeprefix(prefix) in kept
        if field == name or (is_kept and (conversion or str(form)[-1:] not in FLOAT_FORMATS)):
            return False
    return True


# -- The class of a meter


def kept(program: Program, functions: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Of the methods of the program, named as other files do, in which attributes they keep their first argument."""
    named = named_functions(program.tree) if functions else ()
    found = {name: _kept(program, node) for name, node in named if name in functions and "." in name}
    return {name: attributes for name, attributes in found.items() if attributes}


def _kept(program: Program, method: ast.AST) -> tuple[str, ...]:
    """The attributes in which a method of a meter keeps its first argument; none where its class does more with it.

    They are computed from it by arithmetic alone, and nothing else of the class reads them but for its own text.
    """
    of_class = program.class_around(method)
    if not isinstance(method, ast.FunctionDef) or of_class is None or of_class.decorator_list:
        return ()
    if any(program.qualified(each) != "builtins.object" for each in of_class.bases):
        return ()
    arguments = [each.arg for each in method.args.args]
    if method.decorator_list or len(arguments) < 2:
        return ()
    found: set[str] = set()
    while (more := _fed(program, of_class, method, found)) is not None and more != found:
        found = more
    if more is None or any(map(program.is_edited_elsewhere, found)):
        return ()
    return tuple(sorted(each.removeprefix("self.") for each in found))


def _fed(program: Program, of_class: ast.ClassDef, method: ast.FunctionDef, known: set[str]) -> set[str] | None:
    """The attributes that are computed from the argument or from those `known`; None where something else is."""
    argument, found = method.args.args[1].arg, set(known)
    added = {path_of(each.target) for each in ast.walk(of_class) if isinstance(each, ast.AugAssign)}
    for function in of_class.body:
        if not isinstance(function, ast.FunctionDef) or function.name in _TEXTS:
            continue
        for node in own_nodes(function):
            is_argument = function is method and isinstance(node, ast.Name) and node.id == argument
            if not is_argument and not (isinstance(node, ast.Attribute) and path_of(node) in known):
                continue
            if not isinstance(getattr(node, "ctx", None), ast.Load):
                if is_argument:
                    return None
                continue
            target = _target(program, node)
            if target is None or (target in added and isinstance(program.parent(node), ast.Assign)):
                return None  # two names of one tensor, of which one is added to in place
            found.add(target)
    return found


def _target(program: Program, node: ast.AST) -> str | None:
    """The attribute of self to which a statement assigns what it computes from `node` by arithmetic; None elsewhere."""
    above = program.parent(node)
    while isinstance(above, ast.BinOp) and isinstance(above.op, _ARITHMETIC):
        if isinstance(above.op, ast.Div) and above.right is node:
            return None
        node, above = above, program.parent(above)
    if isinstance(above, ast.Assign) and len(above.targets) == 1:
        path = path_of(above.targets[0])
    elif isinstance(above, ast.AugAssign) and isinstance(above.op, _ARITHMETIC):
        path = path_of(above.target)
    else:
        return None
    return path if path.startswith("self.") and path.count(".") == 1 else None
