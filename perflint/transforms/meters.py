"""Has a meter add up on the device what it is given, where its numbers are read now and then."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from perflint.analysis.found import Heat
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.ir.occurrences import occurrences, seen_elsewhere
from perflint.analysis.memory.library import ARRAYS
from perflint.analysis.program import Program
from perflint.analysis.values.codes import named_functions
from perflint.analysis.values.dtypes import INTEGER, has_no_axes, number_kind
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import LOOPS, Function, path_of, receiver_of
from perflint.transforms.accumulate import (
    FLOAT_FORMATS,
    check_cold,
    check_real,
    has_doubles,
    is_in_string,
    reads_alike,
    shows_as_float,
)
from perflint.transforms.collected import ANY_SHAPE, kept_until, shape_of_one
from perflint.transforms.host_code import is_nonzero, is_output, read_of
from perflint.transforms.operations import Replace, expression
from perflint.transforms.rewrite import Blocked, rewrite

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_OPERANDS = (ast.Call, ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.operator, ast.expr_context)
_NUMERIC = {"max", "min", "len", "float", "int"}
TEXTS = frozenset({"__str__", "__repr__", "__format__"})  # of the meter itself, which nobody asks for


def kept(program: Program, functions: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Of the methods of the program, named as other files do, in which attributes they keep their first argument."""
    named = named_functions(program.tree) if functions else ()
    found = {name: kept_by(program, node) for name, node in named if name in functions and "." in name}
    return {name: attributes for name, attributes in found.items() if attributes}


def kept_by(program: Program, method: ast.AST) -> tuple[str, ...]:
    """The attributes in which a method of a meter keeps its first argument; none where its class does more with it.

    They are computed from it by arithmetic alone, and nothing else of the class reads them but for its own text.
    """
    of_class = program.class_around(method)
    if not isinstance(method, ast.FunctionDef) or of_class is None or not is_closed(program, of_class):
        return ()
    if method.decorator_list or len(method.args.args) < 2:
        return ()
    found: set[str] = set()
    while (more := _fed(program, of_class, method, found)) is not None and more != found:
        found = more
    names = sorted(each.removeprefix("self.") for each in found)
    return () if more is None or any(map(program.is_edited_elsewhere, names)) else tuple(names)


def is_closed(program: Program, of_class: ast.ClassDef) -> bool:
    """Does the file tell all that the methods of a class do with its objects, which they never pass on?"""
    if of_class.decorator_list or of_class.keywords or not _is_plain(program, of_class):
        return False
    for each in of_class.body:
        if isinstance(each, ast.FunctionDef):
            first = [arg.arg for arg in (*each.args.posonlyargs, *each.args.args)[:1]]
            is_static = any(path_of(one) in ("staticmethod", "classmethod") for one in each.decorator_list)
            is_hook = each.name[:2] == "__" and each.name not in ("__init__", *TEXTS)
            if is_hook or each.args.posonlyargs or (first != ["self"] and not is_static):
                return False
        elif not isinstance(getattr(each, "value", None), ast.Constant):
            return False
    selves = (each for each in ast.walk(of_class) if isinstance(each, ast.Name) and each.id == "self")
    return all(_is_of_attribute(program, each) for each in selves)


def _is_plain(program: Program, of_class: ast.ClassDef) -> bool:
    """Has it no base, and does nobody set its attributes from outside?"""
    stores = (each for each in program.of_type(ast.Attribute) if isinstance(each.ctx, ast.Store))
    is_patched = any(path_of(each.value) == of_class.name for each in stores)
    return not is_patched and all(program.qualified(each) == "builtins.object" for each in of_class.bases)


def _is_of_attribute(program: Program, name: ast.Name) -> bool:
    """Is an attribute of the object read, a method called as a statement, or `format(**self.__dict__)` returned?"""
    read = program.parent(name)
    if not isinstance(read, ast.Attribute):
        return False
    above = program.parent(read)
    around = program.parent(above) if above is not None else None
    if isinstance(above, ast.Call) and above.func is read:
        return isinstance(around, ast.Expr)
    if read.attr != "__dict__":
        return not read.attr.startswith("__")
    is_format = isinstance(above, ast.keyword) and above.arg is None and receiver_of(around, "format") is not None
    return is_format and isinstance(program.parent(around), ast.Return) if around is not None else False


def _fed(program: Program, of_class: ast.ClassDef, method: ast.FunctionDef, known: set[str]) -> set[str] | None:
    """The attributes that are computed from the argument or from those `known`; None where something else is."""
    argument, found = method.args.args[1].arg, set(known)
    added = {path_of(each.target) for each in ast.walk(of_class) if isinstance(each, ast.AugAssign)}
    stores, computed = list[ast.AST](), set[ast.stmt]()
    methods = (each for each in of_class.body if isinstance(each, ast.FunctionDef) and each.name not in TEXTS)
    for owner, node in ((each, node) for each in methods for node in ast.walk(each)):
        is_argument = owner is method and isinstance(node, ast.Name) and node.id == argument
        if not is_argument and not (isinstance(node, ast.Attribute) and path_of(node) in known):
            continue
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            stores.append(node)
            continue
        target = _target(program, node)
        is_alias = isinstance(program.parent(node), ast.Assign)
        if target is None or (is_alias and added & {target, path_of(node)}):
            return None  # two names of one tensor, of which one is added to in place
        found.add(target)
        computed.add(program.statement_of(node))
    return (
        found if all(program.statement_of(each) in computed or _is_number(program, each) for each in stores) else None
    )


def _is_number(program: Program, node: ast.AST) -> bool:
    value = program.value(node)
    return value.is_literal and isinstance(value.literal, int | float)


def _target(program: Program, node: ast.AST) -> str | None:
    """The attribute of self to which a statement assigns what it computes from `node` by arithmetic; None elsewhere."""
    above = program.parent(node)
    while isinstance(above, ast.BinOp) and isinstance(above.op, _ARITHMETIC):
        other = above.left if above.right is node else above.right
        if (isinstance(above.op, ast.Div) and above.right is node) or not _is_operand(program, other):
            return None
        node, above = above, program.parent(above)
    if isinstance(above, ast.Assign) and len(above.targets) == 1:
        path = path_of(above.targets[0])
    elif isinstance(above, ast.AugAssign) and isinstance(above.op, _ARITHMETIC):
        path = path_of(above.target)
    else:
        return None
    return path if path.startswith("self.") and path.count(".") == 1 else None


def _is_operand(program: Program, node: ast.expr) -> bool:
    """Is it a number where the arguments of the method and the attributes of the object are?"""
    given = {each.arg for each in program.of_type(ast.arg) if program.function_of(each) is program.function_of(node)}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id not in given | _NUMERIC and not _is_number(program, each):
            return False
        if isinstance(each, ast.Call) and path_of(each.func) not in _NUMERIC:
            return False
        if not isinstance(each, _OPERANDS):
            return False
    return True


_DOUBLES = re.compile("double|float64", re.I)
_SHOWING = frozenset(f"builtins.{each}" for each in "str repr print len range enumerate zip int list tuple".split())
_OF_TEXTS = frozenset({"join", "format", "append", "extend"})


def metered(program: Program, sync: Sync) -> Fix:
    """The fix of `meter.update(loss.item(), n)`; raises Blocked, without a reason where it is something else."""
    read = read_of(program, sync)
    call = program.parent(read.top)
    meter = receiver_of(call) if isinstance(call, ast.Call) and call.args[:1] == [read.top] else None
    if not isinstance(call, ast.Call) or not isinstance(meter, ast.Name) or read.converts_to == "int":
        raise Blocked("")
    kept = _kept(program, call) if isinstance(program.parent(call), ast.Expr) else ()
    if not kept or not read.is_scalar:
        raise Blocked("")
    check_real(program, read.base)
    if number_kind(program, read.base) == INTEGER:
        raise Blocked(f"`{meter.id}` would count in floats")
    loop = next((each for each in program.ancestors(call) if isinstance(each, LOOPS)), None)
    if loop is None:
        raise Blocked(f"the loop that makes it hot is elsewhere, and `{meter.id}` lives longer than one call")
    made, uses = _uses_of(program, call, meter)
    is_whole = has_no_axes(program, read.base)  # a tensor with axes takes no format
    handed = [use for use in uses if not isinstance(program.parent(use), ast.Attribute)]
    for use in handed:
        if not _is_formatted(program, use, kept) and not _is_shown(program, use, made.given, kept):
            raise Blocked(f"line {use.lineno} may read the numbers of `{meter.id}`")
    read_as = [each for each in _numbers(program, uses, kept) if not (is_whole and shows_as_float(program, each))]
    wrapped = [each for each in read_as if program.call_of(program.parent(each), "builtins.float") is None]
    varies = shape_of_one(program, read.base) or (".reshape(())" if handed and not is_whole else "")
    kept_as = kept_until(program, read.base, program.statement_of(call), loop).replace(".reshape(())", "")
    if has_doubles(program):
        copied = kept_as if _DOUBLES.search(program.text) else ".detach()"  # `double` copies what has fewer bits
        suffix = f"{copied}.double(){varies}"
    else:
        suffix = f"{kept_as}.float(){varies}"
    safety, title = Safety.ROUNDING, f"have `{meter.id}` add up on the device"
    counts = (*call.args[1:], *(each.value for each in call.keywords))
    if not program.value(read.base).sure:
        safety, title = Safety.BEHAVIOUR, f"{title}, if it is given tensors"
    elif varies:
        safety, title = Safety.BEHAVIOUR, f"{title}{ANY_SHAPE}"
    elif not all(is_nonzero(program, each) for each in counts):
        safety, title = Safety.BEHAVIOUR, f"{title}, where what is divided by 0 is nan"
    elif not all(reads_alike(program, each) for each in wrapped):
        safety, title = Safety.BEHAVIOUR, f"{title}, where what it was given nothing for is 0.0 and not 0"
    made_floats = [Replace(each, expression("float({read})", read=each)) for each in wrapped]
    return Fix(title, safety, rewrite(program, read.replaced(suffix), *made_floats))


def _kept(program: Program, call: ast.Call) -> Collection[str]:
    """The attributes of its object in which a method keeps its first argument, of this file or another one."""
    callee = program.callee(call)
    return kept_by(program, callee) if callee is not None else program.keeps_elsewhere(call)


def _uses_of(program: Program, call: ast.Call, meter: ast.Name) -> tuple[Definition, Sequence[ast.Name]]:
    """How the meter is made, by its class and for this function alone, and the uses of it; raises Blocked."""
    graph, scope = program.get(Flow).graph(meter), program.function_of(call) or program.tree
    if reason := seen_elsewhere(program, scope, meter.id, call):
        raise Blocked(reason)
    definitions = [each for each in graph.definitions(meter) if isinstance(each, Definition)]
    if len(definitions) != 1 or not _is_made(program, made := definitions[0], call):
        raise Blocked(f"`{meter.id}` is not one meter of this function")
    uses = [each for each in occurrences(scope, meter.id) if isinstance(each, ast.Name) and each != made.node]
    uses = [each for each in uses if made in graph.definitions(each)]
    if "inference_mode" in program.text and sum(_is_told(program, each) for each in uses) > 1:
        raise Blocked(f"`{meter.id}` may be updated inside and outside of inference mode")
    for use in uses:
        if (
            not isinstance(use.ctx, ast.Load)
            or sum(isinstance(each, Definition) for each in graph.definitions(use)) > 1
        ):
            raise Blocked(f"line {use.lineno} may use another meter than `{meter.id}`")
    return made, uses


def _numbers(program: Program, uses: Iterable[ast.Name], kept: Collection[str]) -> Iterator[ast.Attribute]:
    """The reads of a meter's numbers, all of them now and then; raises Blocked where it is used otherwise."""
    for use in uses:
        read = program.parent(use)
        call = program.parent(read) if read is not None else None
        if not isinstance(read, ast.Attribute):
            continue
        if isinstance(call, ast.Call) and call.func is read:
            if not isinstance(program.parent(call), ast.Expr):
                raise Blocked(f"line {use.lineno} uses what `{program.segment(read)}` gives")
            given = (*call.args, *(each.value for each in call.keywords))
            if any(program.value(each).kind in ARRAYS for each in given):
                raise Blocked(f"line {use.lineno} gives `{program.segment(use)}` a tensor or an array")
        elif not isinstance(read.ctx, ast.Load) or is_in_string(program, read) or read.attr.startswith("__"):
            raise Blocked(f"line {use.lineno} sets `{program.segment(read)}`, or reads it inside a string")
        elif read.attr in kept:
            check_cold(program, read)
            yield read


def _is_made(program: Program, made: Definition, call: ast.Call) -> bool:
    """Does a call of the class that has this method make the object, so that nobody else has it?"""
    given, method, callee = made.given, program.value(call.func), program.callee(call)
    if not isinstance(given, ast.Call) or method.owner is None or not _is_assigned(program, made):
        return False
    of_class, made_by = program.class_around(callee) if callee is not None else None, program.value(given.func)
    is_its = made_by.node is of_class if of_class is not None else made_by.name == method.owner.name
    return is_its and method.owner.node is of_class


def _is_assigned(program: Program, made: Definition) -> bool:
    """Is it given that one name alone?"""
    statement = program.statement_of(made.node)
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return False
    (target,), value = statement.targets, statement.value
    return target is made.node or (
        isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and made.node in target.elts
    )


def _is_formatted(program: Program, use: ast.Name, kept: Collection[str]) -> bool:
    """Is it given to `"{loss.avg:.4f}".format(loss=loss)`, now and then, whose fields all show floats?"""
    around = program.parent(use)
    call = program.parent(around) if isinstance(around, ast.keyword) else around
    text = receiver_of(call, "format")
    if not isinstance(call, ast.Call) or not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return False
    check_cold(program, use)
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
    if getattr(shower, "name", "") != "__init__" or not _only_shows(program, of_shower, kept):
        return False
    statement = program.statement_of(use)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is around else None
    scope = program.function_of(use) or program.tree
    if not isinstance(target, ast.Name) or seen_elsewhere(program, scope, target.id, use):
        return False
    if any(isinstance(each.ctx, ast.Load) and not _is_told(program, each) for each in occurrences(scope, target.id)):
        return False
    attributes = (each for each in ast.walk(of_meter) if isinstance(each, ast.Attribute))
    own = [each for each in attributes if getattr(program.function_of(each), "name", "") in TEXTS]
    given = {**_defaults(init), **program.arguments(made, init).given}
    texts = [
        _written(program, receiver_of(each, "format"), given)
        for each in ast.walk(of_meter)
        if receiver_of(each, "format")
    ]
    return all(shows_as_float(program, each) for each in own if path_of(each).removeprefix("self.") in kept) and all(
        text is not None and _shows_floats(text, "", kept) for text in texts
    )


def _only_shows(program: Program, of_class: ast.ClassDef, kept: Collection[str]) -> bool:
    """Does a class only make texts of the objects that it is given, now and then, and reads none of `kept` itself?"""
    for node in ast.walk(of_class):
        if isinstance(node, ast.Call | ast.JoinedStr) and program.heat(node) is not Heat.ONCE:
            return False
        if isinstance(node, ast.Call) and not _is_harmless(program, node):
            return False
        is_called = receiver_of(program.parent(node)) is not None and getattr(program.parent(node), "func", 0) is node
        if isinstance(node, ast.Attribute) and node.attr in (*kept, "__dict__") and not is_called:
            return False
    return is_closed(program, of_class)


def _is_harmless(program: Program, call: ast.Call) -> bool:
    """Does a call keep nothing of what it is given, and make nothing but texts and numbers of it?"""
    if program.qualified(call.func) in _SHOWING:
        return True
    func = call.func
    is_own = isinstance(func, ast.Attribute) and path_of(func.value) == "self"
    is_plain = isinstance(func, ast.Attribute) and (func.attr in _OF_TEXTS or not (call.args or call.keywords))
    return is_own or is_plain or is_output(program, call)


def _is_told(program: Program, use: ast.AST) -> bool:
    """Is it an object of which a method is called as a statement?"""
    call = program.parent(read) if isinstance(read := program.parent(use), ast.Attribute) else None
    return isinstance(call, ast.Call) and call.func is read and isinstance(program.parent(call), ast.Expr)


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
        if field is None:
            continue
        attribute = field.removeprefix(prefix)
        is_its = field.startswith(prefix)
        is_odd = not attribute.isidentifier() or attribute.startswith("__")
        if field == name or f"{{{name}" in str(form) or (name and is_its and is_odd):
            return False
        if is_its and attribute in kept and (conversion or str(form)[-1:] not in FLOAT_FORMATS):
            return False
    return True
