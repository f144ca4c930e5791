"""What loops over parameters do to each of them, and whether those of two modules are as many, in the same order."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.modules import GIVE_BACK
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import last_name, nodes_below, path_of, variables_in

ParameterLoop = ast.For | ast.ListComp | ast.GeneratorExp
_UPDATES = frozenset("mul_ add_ sub_ div_ lerp_ copy_ clamp_ clip_ addcmul_ addcdiv_ zero_ detach_".split())
_CLAMPS = frozenset({"clamp_", "clip_"})
_REDUCED = re.compile(r"norm|(?=.*'sum')(?=.*('grad'|'pow'|'square'|'abs'|Pow\(\)))")
_NORM = re.compile(r"'norm'|'abs'.*'max'|'max'.*'abs'")
_COMPUTED = frozenset({"mul", "add", "sub", "div", "lerp", "update_average"})
_HARMLESS = _COMPUTED | frozenset("detach float to type_as view_as numel norm sum item items pow square abs".split())
_HARMLESS |= {f"builtins.{each}" for each in ("float", "len", "min", "max", "isinstance")}
_HARMLESS |= {f"torch.{each}" for each in ("no_grad", "norm", "linalg.norm", "linalg.vector_norm")}
_HARMLESS |= {"clone", "is_floating_point"}
_AVERAGES = re.compile(r"(^|[._])(ema|averager?|shadow)\.update$", re.IGNORECASE)  # of one parameter
_AVERAGING = re.compile(r"EMA|MovingAverage|ExponentialAverage")  # classes
_PLAIN = (ast.With, ast.If, ast.Expr, ast.Assign, ast.AugAssign, ast.Assert, ast.Continue, ast.Pass)
_TABLES = frozenset({"builtins.dict", "state_dict"})
_WALKED = re.compile(r"param|grads|gradients|^state_dict$", re.IGNORECASE)


def update_of(program: Program, loop: ParameterLoop) -> str:
    """What a loop over parameters does to each of them and nothing else; empty for other loops.

    That is update, clip, copy or norm: an average, say, a clamp, an assignment, or a sum over all.
    """
    walked = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
    kind = _kind(program, loop)
    owner = getattr(program.class_around(loop), "name", "")
    is_average = kind == "update" and _AVERAGING.search(owner) is not None
    is_walked = kind and (is_average or _walks_parameters(program, walked) or _reads_states(program, loop))
    return kind if is_walked else ""


def _kind(program: Program, loop: ParameterLoop) -> str:
    if not isinstance(loop, ast.For):
        nodes = nodes_below(loop.elt)
        if not any("grad" in vars(each).values() for each in nodes):
            return ""
        calls = [each for each in nodes if isinstance(each, ast.Call)]
        names = {getattr(each.func, "attr", "") for each in calls if program.qualified(each.func) not in _HARMLESS}
        text = ast.dump(loop.elt) if names <= _HARMLESS | {"abs", "max"} else ""
        return "norm" if _NORM.search(text) else ""
    own = variables_in(loop.target)
    updates, computes = set[str](), False
    for node in (each for part in loop.body for each in nodes_below(part)):
        computes |= isinstance(node, ast.BinOp)
        if isinstance(node, ast.Call):
            method = getattr(node.func, "attr", "")
            if _AVERAGES.search(path_of(node.func)) and node.args:
                updates.add("update")
            elif method not in _UPDATES | _HARMLESS and program.qualified(node.func) not in _HARMLESS:
                return ""
            updates |= {method} & _UPDATES
            computes |= method in _COMPUTED
        elif isinstance(node, ast.AugAssign):
            is_own = not own.isdisjoint(path_of(node.target).split("."))
            updates |= {"update"} if is_own else {"norm"} if _REDUCED.search(ast.dump(node.value)) else set()
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            adds = isinstance(node.value, ast.BinOp) and path_of(node.value.left) == node.targets[0].id
            is_norm = adds and node.targets[0].id not in own and _REDUCED.search(ast.dump(node.value))
            (updates if is_norm else own).add("norm" if is_norm else node.targets[0].id)
        elif isinstance(node, ast.Assign):
            is_kept = getattr(node.targets[0], "attr", "") == "data" or _is_slot(node.targets[0], own)
            updates |= {"update"} if is_kept and _is_computed(program, node.value) else set()
        elif isinstance(node, ast.stmt) and not isinstance(node, _PLAIN):
            return ""
    if not updates or updates == {"copy_"}:
        return "" if not updates else "update" if computes else "copy"
    return "norm" if "norm" in updates else "clip" if updates <= _CLAMPS else "update"


def _is_slot(target: ast.expr, own: set[str]) -> bool:
    return isinstance(target, ast.Subscript) and not own.isdisjoint(path_of(target.slice).split("."))


def _is_computed(program: Program, value: ast.expr) -> bool:
    """Is it computed of several tensors, perhaps by the line before, and copied or detached?"""
    method = getattr(getattr(value, "func", None), "attr", "")
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and method in ("clone", "detach"):
        return _is_computed(program, value.func.value)
    sources = program.get(Flow).assigned(value) if isinstance(value, ast.Name) else [value]
    methods = [getattr(getattr(each, "func", None), "attr", "") for each in sources]
    return not _COMPUTED.isdisjoint(methods) or any(isinstance(each, ast.BinOp) for each in sources)


def _reads_states(program: Program, loop: ParameterLoop) -> bool:
    """Does it look up what it walks in the states of a module?"""
    own = variables_in(loop.target) if isinstance(loop, ast.For) else set()
    nodes = (each for part in loop.body for each in nodes_below(part)) if isinstance(loop, ast.For) else ()
    looked_up = (each.value for each in nodes if isinstance(each, ast.Subscript) and path_of(each.slice) in own)
    return any(getattr(each.func, "attr", "") == "state_dict" for part in looked_up for each in _tables(program, part))


def _tables(program: Program, node: ast.expr) -> list[ast.Call]:
    """The calls that make the dictionary that `node` may be."""
    made = program.get(Origins).of(node) if isinstance(node, ast.Name | ast.Attribute) else []
    calls = [each for each in made if isinstance(each, ast.Call)]
    return [each for each in calls if getattr(each.func, "attr", program.qualified(each.func)) in _TABLES]


def _walks_parameters(program: Program, walked: ast.expr) -> bool:
    """Does it walk parameters, by what they are called, or a dictionary that is made of them?"""
    keyed = walked.func.value if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Attribute) else walked
    nodes = (each for part in (walked, *_tables(program, keyed)) for each in ast.walk(part))
    words = [str(getattr(e, "attr", getattr(e, "id", getattr(e, "value", "")))) for e in nodes]
    return any(map(_WALKED.search, words)) and not any("emb" in word for word in words)  # embeddings have one


_COPIES = frozenset({"copy.deepcopy", "copy.copy"})
_DEPTH = 8


def alike(program: Program, one: ast.expr, other: ast.expr, depth: int = _DEPTH) -> bool:
    """Are two modules made by the same code, one of the other, or is one given the states of the other?

    Those of a function's parameters are if all calls in the file give it such.
    """
    if not depth:
        return False
    parameters = [_parameter(program, each) for each in (one, other)]
    if parameters[0] is not None and parameters[1] is not None:
        first, second = (program.given(each) for each in parameters if each is not None)
        pairs = [(mine, theirs) for (_, mine), (_, theirs) in zip(first, second, strict=True)]
        return bool(pairs) and all(
            mine is not None and theirs is not None and alike(program, mine, theirs, depth - 1)
            for mine, theirs in pairs
        )
    if any(_is_rebuilt(program, each) for each in (one, other)):
        return False
    made = [_recipes(program, each, _DEPTH) for each in (one, other)]
    is_same = made[0] == made[1] and len(made[0]) == 1 and "" not in made[0]
    return is_same or _is_loaded(program, one, other) or _is_loaded(program, other, one)


def _parameter(program: Program, node: ast.expr) -> ast.arg | None:
    found = [*program.get(Flow).definitions(node)] if isinstance(node, ast.Name) else []
    return found[0] if len(found) == 1 and isinstance(found[0], ast.arg) else None


def _recipes(program: Program, node: ast.expr, depth: int) -> set[str]:
    """What makes the module, one or several of these; "" among them where that isn't known."""
    if not depth:
        return {""}
    if not isinstance(node, ast.Call):
        sources = program.get(Origins).sources(node)
        return {each for part in sources for each in _recipes(program, part, depth - 1)} or {""}
    if isinstance(node.func, ast.Attribute) and node.func.attr in GIVE_BACK and program.callee(node) is None:
        return _recipes(program, node.func.value, depth - 1)
    if program.qualified(node.func) in _COPIES and node.args:
        return _recipes(program, node.args[0], depth - 1)
    is_maker = program.value(node.func).kind is Kind.CLASS or last_name(node.func)[:1].isupper()
    return {_pinned(program, node)} if is_maker or program.callee(node) is not None else {""}


def _pinned(program: Program, call: ast.Call) -> str:
    """The text of a call, with the definitions of the variables in it."""
    names = (each for each in ast.walk(call) if isinstance(each, ast.Name))
    flow = program.get(Flow)
    pins = sorted({(each.id, id(one)) for each in names for one in flow.definitions(each)})
    return f"{ast.unparse(call)} {pins}"


def _is_rebuilt(program: Program, module: ast.expr) -> bool:
    """Is a part of it replaced, as far as the file tells?"""
    if isinstance(module, ast.Call):
        return False
    path = path_of(module)
    parts: Sequence[ast.Attribute | ast.Subscript] = program.of_type(ast.Attribute, ast.Subscript)
    return not path or any(path_of(each.value) == path for each in parts if not isinstance(each.ctx, ast.Load))


def _is_loaded(program: Program, one: ast.expr, other: ast.expr) -> bool:
    """Is `one` given all states of `other`, which fails where they differ?"""
    for call in program.of_type(ast.Call):
        method = call.func if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict" else None
        state = call.args[0] if method is not None and len(call.args) == 1 and not call.keywords else None
        source = state.func if isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) else None
        if method is None or source is None or source.attr != "state_dict":
            continue
        is_there = (path_of(method.value), path_of(source.value)) == (path_of(one), path_of(other))
        is_attribute = path_of(one).startswith("self.") and path_of(other).startswith("self.")
        around = program.class_around if is_attribute else program.function_of
        if is_there and around(call) is around(one):
            return True
    return False
