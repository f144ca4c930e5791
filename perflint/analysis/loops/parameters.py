"""Recognises loops that do the same to each parameter of a model: averages, clips, copies, sums."""

from __future__ import annotations

import ast
import re

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.syntax.walk import nodes_below, path_of, receiver_of, variables_in

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


def parameter_update(program: Program, loop: ParameterLoop) -> str:
    """What a loop over parameters does to each and nothing else: update, clip, copy or norm; empty for other loops.

    These are an average, say, a clamp, an assignment, or a sum over all.
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
    if (copied := receiver_of(value, "clone", "detach")) is not None:
        return _is_computed(program, copied)
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
    made = program.get(Origins).of(node) if isinstance(node, ast.Name | ast.Attribute) else []
    calls = [each for each in made if isinstance(each, ast.Call)]
    return [each for each in calls if getattr(each.func, "attr", program.qualified(each.func)) in _TABLES]


def _walks_parameters(program: Program, walked: ast.expr) -> bool:
    nodes = (each for part in (walked, *_tables(program, receiver_of(walked) or walked)) for each in ast.walk(part))
    words = [str(getattr(e, "attr", getattr(e, "id", getattr(e, "value", "")))) for e in nodes]
    return any(map(_WALKED.search, words)) and not any("emb" in word for word in words)  # embeddings have one
