"""The statements of a loop's body, and of functions that it calls, and the values of expressions, in all steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.analysis.memory.dispatch import is_scripted, may_be_wrapped
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import defaults_of
from perflint.syntax.walk import PlainLoop, integer, own_nodes, path_of
from perflint.transforms.operations import FIT, assignment, derived, expression, in_rows, reference, same_code
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize import calls, rnns
from perflint.transforms.vectorize.axes import mapped, pointwise, product
from perflint.transforms.vectorize.indexing import part_of_step, selected, sliced, split_of
from perflint.transforms.vectorize.modules import ATTRIBUTES, called_module, check_invariant, intercepts, invariant
from perflint.transforms.vectorize.results import lift_result
from perflint.transforms.vectorize.rnns import is_left, is_of
from perflint.transforms.vectorize.scope import Callee, Line, Scope, counter, tensor
from perflint.transforms.vectorize.shifted import shifted_in
from perflint.transforms.vectorize.values import (
    Batched,
    Carried,
    Invariant,
    Parts,
    State,
    Value,
    is_named,
)


def lift_body(scope: Scope, statements: list[ast.stmt]) -> Iterator[Line]:
    for node in statements:
        new = _lifted(scope, node)
        yield Line(node, (*scope.draft.before, *new))
        scope.draft.before.clear()
    for path in sorted(scope.draft.consumed):
        if not is_left(scope.values, path):
            raise Blocked(f"`{path}` goes into an RNN, and is not what it returns", statements[-1])


def _lifted(scope: Scope, node: ast.stmt) -> tuple[ast.stmt, ...]:
    result = lift_result(scope, node)
    if result is not None:
        return (result,)
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return ()
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _assigned(scope, node.targets[0], node.value, node)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return _assigned(scope, node.target, node.value, node)
    raise Blocked(_why(node), node)


def _why(node: ast.stmt) -> str:
    if isinstance(node, ast.If):
        return "a test is made in each step"
    if isinstance(node, PlainLoop):
        return "there is another loop in it"
    if isinstance(node, ast.Break | ast.Return | ast.Continue):
        return "a step may end the loop"
    if isinstance(node, ast.AugAssign):
        return f"`{ast.unparse(node.target)}` is changed in place"
    return "it does more than compute"


def _assigned(scope: Scope, target: ast.expr, value: ast.expr, node: ast.stmt) -> tuple[ast.stmt, ...]:
    if not rnns.is_recurrent(scope, value):
        return tuple(_bind(scope, target, scope.lift(value), node))
    assert isinstance(value, ast.Call)
    if scope.program.value(value.func).name.endswith("Cell"):
        before, left = rnns.lift_cell(scope, value)
        return (*before, *_bind(scope, target, left, node))
    made, states = rnns.lift_rnn(scope, target, value)
    assert isinstance(target, ast.Tuple)
    of_states = target.elts[1]
    parts = of_states.elts if isinstance(of_states, ast.Tuple | ast.List) else [of_states]
    if len(parts) != len(states):
        raise Blocked("the state that goes in is not the one that came out", node)
    for part, state in zip(parts, states, strict=True):
        _bind_state(scope, part, state, node)
    return (made,)


def _bind(scope: Scope, target: ast.expr, value: Value, node: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(value, Carried):
        raise Blocked(f"the step needs `{value.path}` of the step before", node)
    if isinstance(target, ast.Tuple | ast.List):
        if not isinstance(value, Parts) or len(value.items) != len(target.elts):
            raise Blocked("several names get the parts of one value", node)
        _check_no_exchange(target.elts, value.items, node)
        for part, item in zip(target.elts, value.items, strict=True):
            if isinstance(item, Carried):
                scope.values[path_of(part)] = item
            else:
                yield from _bind(scope, part, item, node)
    elif isinstance(value, State | Parts):
        _bind_state(scope, target, value, node)
    else:
        step = tensor(value, target)
        if not isinstance(target, ast.Name):
            raise Blocked(f"`{ast.unparse(target)}` is changed in each step", node)
        yield from _bind_steps(scope, target.id, step)


def _bind_steps(scope: Scope, variable: str, step: Batched | Invariant) -> Iterator[ast.stmt]:
    name = scope.local(variable)
    if name in scope.facts.shifted and name in scope.draft.shifted and name not in scope.facts.live_out:
        scope.values[variable] = step
        return
    is_copy = is_named(step.code, name) or (isinstance(step.code, ast.Name) and _is_unread(scope, name))
    if not is_copy:
        yield assignment(name, step.code)
    if isinstance(step, Invariant):
        scope.values[variable] = replace(step, code=reference(name))
    else:
        reads = [isinstance(use.ctx, ast.Load) for use in scope.uses(name)] if scope.callee is None else []
        is_read_once = sorted(reads) == [False, True]
        scope.values[variable] = replace(step, code=reference(name)) if is_read_once else step.named(reference(name))


def _is_unread(scope: Scope, name: str) -> bool:
    if scope.callee is not None or name in scope.facts.live_out or scope.program.function_of(scope.facts.loop) is None:
        return False
    return not any(isinstance(use.ctx, ast.Load) for use in scope.uses(name))


def _check_no_exchange(targets: list[ast.expr], values: tuple[Value, ...], node: ast.stmt) -> None:
    given: set[str] = set()
    for target, value in zip(targets, values, strict=True):
        parts = ast.walk(value.code) if isinstance(value, Batched | Invariant) else ()
        if any(isinstance(part, ast.Name) and part.id in given for part in parts):
            raise Blocked("names exchange their values", node)
        given.add(path_of(target))


def _bind_state(scope: Scope, target: ast.expr, value: State | Parts, node: ast.stmt) -> None:
    name = path_of(target)
    are_states = all(isinstance(each, State) for each in (value.items if isinstance(value, Parts) else (value,)))
    if not name or not (is_of(value, name) or (isinstance(target, ast.Name) and are_states)):
        raise Blocked("a state is loop-carried under another name", node)
    if scope.callee is None and is_of(value, name) and not (isinstance(value, State) and value.outputs):
        scope.draft.final.add(name)
    scope.values[name] = value


_IDENTITIES = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def lift(scope: Scope, node: ast.expr) -> Value:
    before = len(scope.draft.before)
    try:
        return _by_rule(scope, node)
    except Blocked:
        del scope.draft.before[before:]
        if (found := mapped(scope, node)) is None:
            raise
        return found


def _by_rule(scope: Scope, node: ast.expr) -> Value:
    found = scope.read(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else None
    if isinstance(found, Carried) and isinstance(node, ast.Name) and node.id in scope.facts.shifted:
        return shifted_in(scope, node)
    if found is not None:
        return found
    if isinstance(node, ast.Tuple | ast.List):
        return Parts(tuple(scope.lift(part) for part in node.elts))
    if isinstance(node, ast.Call):
        return _call(scope, node)
    if not scope.varies(node):
        return invariant(scope, node)
    if isinstance(node, ast.Subscript):
        return _subscript(scope, node)
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
        return _operator(scope, node)
    raise _unknown(scope, node)


def _call(scope: Scope, node: ast.Call) -> Value:
    if not scope.varies(node):
        return invariant(scope, node)
    if rnns.is_recurrent(scope, node):
        raise Blocked("an RNN's output and state are not kept apart", node)
    module = called_module(scope, node)
    function = _callee(scope, node) if module is None and not calls.is_loss(scope, node) else None
    return calls.lift_call(scope, node, module) if function is None else _inlined(scope, node, function)


def _unknown(scope: Scope, node: ast.expr) -> Blocked:
    return Blocked(f"{shown(scope.program, node)} is not known to be the same for all steps at once", node)


def _operator(scope: Scope, node: ast.BinOp | ast.UnaryOp | ast.Compare) -> Value:
    if isinstance(node, ast.BinOp):
        if index := counter(scope, node):
            return index
        if isinstance(node.op, ast.MatMult):
            return product([scope.tensor(each) for each in (node.left, node.right)], node)
        return pointwise(scope, node, [node.left, node.right])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = scope.tensor(node.operand, node)
        if not isinstance(value, Batched):
            raise Blocked("sizes of a step are combined", node)
        return value.computed(expression("-{x}", x=value.code), dense=value.dense, fresh=True)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], _IDENTITIES):
        return pointwise(scope, node, [node.left, node.comparators[0]])
    raise _unknown(scope, node)


def _subscript(scope: Scope, node: ast.Subscript) -> Value:
    base = scope.lift(node.value)
    if isinstance(base, Parts):
        index = integer(node.slice)
        if index is None or not -len(base.items) <= index < len(base.items):
            raise Blocked("which of the values is meant is no constant", node)
        return base.items[index]
    if isinstance(base, Invariant):
        if (split := split_of(scope, node.value)) is not None:
            return selected(scope, node, split)
        if scope.program.value(node.value).kind is not Kind.TENSOR and not scope.is_given_to_torch(node.value):
            raise Blocked(f"{shown(scope.program, node.value)} is not known to be a tensor", node)
        return sliced(scope, node)
    step = tensor(base, node)
    assert isinstance(step, Batched)
    return part_of_step(scope, node, step)


_DEPTH = 3


def _callee(scope: Scope, node: ast.Call) -> ast.FunctionDef | None:
    function = scope.program.callee(node)
    if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
        return None
    value = scope.program.value(node.func)
    if not value.sure or value.kind not in (Kind.MODULE, Kind.FUNCTION):
        return None
    return function


def _inlined(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> Value:
    _check_callee(scope, node, function)
    first, *more = body = [each for each in function.body if not _is_docstring(each)] or function.body
    if isinstance(first, ast.If) and not more:
        return _chosen(scope, node, function, first)
    return _returned(scope, node, function, body)


def _returned(scope: Scope, node: ast.Call, function: ast.FunctionDef, body: list[ast.stmt]) -> Value:
    inner, given, front = _entered(scope, node, function)
    *statements, last = body
    if not isinstance(last, ast.Return) or last.value is None:
        raise Blocked(f"`{function.name}` does not end by returning what it computes", node)
    is_same = True
    try:
        for each in statements:
            if not isinstance(each, ast.Assign) or len(each.targets) != 1:
                raise Blocked(_why(each), each)
            due, count = _as_written(inner, each.value), len(scope.draft.before)
            scope.draft.before.extend(_assigned(inner, each.targets[0], each.value, each))
            made = [getattr(new, "value", new) for new in scope.draft.before[count:]]
            is_same = is_same and len(made) == 1 and same_code(made[0], due)
        due, count = _as_written(inner, last.value), len(scope.draft.before)
        value = inner.lift(last.value)
    except Blocked as blocked:
        raise Blocked(f"in {shown(scope.program, node.func)}, {blocked}", node) from None
    if is_same and isinstance(value, Batched) and same_code(value.code, due) and len(scope.draft.before) == count:
        del scope.draft.before[front:]  # what it does to a step, it does to all of them
        return replace(value, code=scope.code(node, given))
    scope.draft.oddities.add("the body of a function")
    return value


def _as_written(inner: Scope, node: ast.expr) -> ast.expr:
    """The expression of a called function with all steps for each of its tensors."""
    codes = dict(inner.callee.codes if inner.callee is not None else {})
    codes |= {name: value.code for name, value in inner.values.items() if isinstance(value, Batched)}
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in codes)
    return derived(node, {part: codes[part.id] for part in names})


def _chosen(scope: Scope, node: ast.Call, function: ast.FunctionDef, choice: ast.If) -> Batched:
    """The call by torch.vmap of a function that chooses by what is the same in all steps; raises Blocked."""
    is_rounded = "autocast" in scope.program.text  # torch.vmap makes matrices of dots, in half precision there
    if node.keywords or not scope.facts.torch or is_scripted(scope.program) or is_rounded:
        raise Blocked(f"`{function.name}` can't be called by torch.vmap", node)
    ways = [*_ways(scope, node, function, choice)]
    given = [scope.tensor(each) for each in node.args]
    axes = ["0" if isinstance(each, Batched) else "None" for each in given]
    where = f", in_dims=({', '.join(axes)},)" if "None" in axes else ""
    codes = [each.in_front().code if isinstance(each, Batched) else each.code for each in given]
    template = f"{{torch}}.vmap({{f}}{where})({{*given}})"
    code = in_rows(expression(template, torch=scope.facts.torch, f=scope.code(node.func), given=codes), FIT)
    scope.draft.oddities.add("torch.vmap")
    return Batched(code, 0, min(each.least for each in ways), max(each.most for each in ways), own=True)


def _ways(scope: Scope, node: ast.Call, function: ast.FunctionDef, choice: ast.If) -> Iterator[Batched]:
    """What each branch of `function` returns, of which all must be lifted, and leave no other trace."""
    draft, (inner, *_), rest = scope.draft, _entered(scope, node, function), list[ast.stmt]([choice])
    written, marks = len(draft.before), {*draft.changes, *draft.consumed}
    while rest:
        test = rest[0] if len(rest) == 1 and isinstance(rest[0], ast.If) else None
        check_invariant(inner, *([test.test] if test is not None else []))
        value = _returned(scope, node, function, rest if test is None else test.body)
        del draft.before[written:]
        if (
            not isinstance(value, Batched)
            or (test and inner.varies(test.test))
            or marks != {*draft.changes, *draft.consumed}
        ):
            raise Blocked(f"`{function.name}` does more than choose how to compute", node)
        yield value
        rest = [] if test is None else test.orelse
    around = scope.program.parent(node)
    if test is not None and not (isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Subscript)):
        raise Blocked(f"`{function.name}` may return nothing", node)  # which no slot of a tensor takes


def _check_callee(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> None:
    owner = scope.program.class_of(function)
    if function.decorator_list or scope.depth >= _DEPTH:
        raise Blocked(f"`{function.name}` is wrapped or calls too deep", node)
    if may_be_wrapped(scope.program):
        raise Blocked(f"{shown(scope.program, node.func)} may be wrapped: calling it is more than its body", node)
    if owner is not None and intercepts(owner, {*ATTRIBUTES, "__call__"}):
        raise Blocked(f"calling {shown(scope.program, node.func)} is more than its body", node)
    if owner is not None and any(True for _ in owner.overriding(function.name)):
        raise Blocked(f"a subclass has its own `{function.name}`", node)
    if scope.varies(node.func):
        raise Blocked("another function is called in each step", node)
    if any(isinstance(each, ast.Global | ast.Nonlocal | ast.Yield | ast.Lambda) for each in own_nodes(function)):
        raise Blocked(f"`{function.name}` does more than compute", node)


def _entered(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> tuple[Scope, dict[ast.expr, ast.expr], int]:
    """The scope of a function that is called, its arguments on all steps, and where the statements for it begin."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or any(isinstance(each, ast.Starred) for each in node.args):
        raise Blocked(f"`{function.name}` takes any number of arguments", node)
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    inner = Scope(scope.facts, scope.draft, scope.assigned, callee=Callee(scope.depth + 1))
    if scope.program.class_of(function) is not None:
        inner = _with_self(scope, inner, names.pop(0), scope.code(_receiver(scope, node)))
    given, defaults = scope.program.arguments(node, function).given, defaults_of(function)
    values = {each: scope.lift(each) for each in given.values()}
    front = len(scope.draft.before)
    for name in [*names, *(each.arg for each in arguments.kwonlyargs)]:
        if name in given:
            _hand(inner, name, values[given[name]], function)
        elif isinstance(defaults.get(name), ast.Constant):
            _hand(inner, name, Invariant(defaults[name], 0), function)
        else:
            raise Blocked(f"`{function.name}` gets no `{name}`", node)
    return inner, {each: value.code for each, value in values.items() if isinstance(value, Batched)}, front


def _hand(inner: Scope, name: str, value: Value, function: ast.FunctionDef) -> None:
    reads = sum(isinstance(each, ast.Name) and each.id == name for each in ast.walk(function))
    if isinstance(value, Batched) and reads > 1:  # dropout draws once, and nothing is computed twice
        is_computed = any(isinstance(each, ast.Call | ast.BinOp) for each in ast.walk(value.code))
        value = value.named(reference(inner.bound(value.code)) if is_computed else value.code)
    inner.values[name] = value
    if isinstance(value, Invariant) and inner.callee is not None:
        inner.callee.codes[name] = value.code


def _with_self(scope: Scope, inner: Scope, name: str, receiver: ast.expr) -> Scope:
    prefix = f"{ast.unparse(receiver)}."
    known = (*scope.values, *scope.assigned)
    own = {each: f"{name}.{each.removeprefix(prefix)}" for each in known if each.startswith(prefix)}
    others = {each for each in scope.assigned if not each.startswith(f"{name}.")}
    values = {own[each]: value for each, value in scope.values.items() if each in own}
    shared = {own[each] for each in scope.assigned if each in own}
    callee = Callee(inner.depth, {name: receiver})
    return replace(inner, assigned=frozenset(shared | others), values=values, callee=callee)


def _receiver(scope: Scope, node: ast.Call) -> ast.expr:
    if scope.program.value(node.func).kind is Kind.MODULE:
        return node.func
    if not isinstance(node.func, ast.Attribute):
        raise Blocked("it is not known what a method is called of", node)
    return node.func.value


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
