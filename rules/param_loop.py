"""A loop over the parameters updates them one by one, with kernels of their own for each.

## What it does

Reports loops over parameters, gradients or states that run in every step of training and only update them in place:
moving averages, target networks and scaled gradients (*update*), clamped ones (*clip*), copies (*copy*), and norms or
penalties that are added up or listed (*norm*). Functions named for averages or clipping are taken to run in every step.
Leaves alone tests, and loops that initialise, load, do anything else, or run now and then (`if step % n == 0`).

## Why it is slow

Each operation on each of hundreds of parameters launches a kernel. `torch._foreach_mul_` and the like, which
`torch.optim` uses, too, take lists, and launch a few kernels for all.

## Example

```python
for param, target_param in zip(net.parameters(), target_net.parameters()):
    target_param.data.copy_(tau * param.data + (1 - tau) * target_param.data)
```

## Use instead

```python
params = []
target_params = []
for param, target_param in zip(net.parameters(), target_net.parameters()):
    params.append(param.data)
    target_params.append(target_param.data)
if params:
    scaled = torch._foreach_mul(params, tau)
    torch._foreach_mul_(target_params, 1 - tau)
    torch._foreach_add_(target_params, scaled)
```

## Fix safety

`exact` where gradients of a model that the file gives to an optimizer are clamped to [-x, x]:
`torch.nn.utils.clip_grad_value_` clips them. All else is `behaviour`, a candidate for `--unsafe` and for `tune`,
because `torch._foreach_*` are functions that torch calls private, though its optimizers rest on them. The operations
are those of the loop, in its order, but for division by a number, which a single tensor of CUDA does by the reciprocal.
There has to be memory for a copy of all parameters, and what has to hold besides is named: that no memory is shared,
that the tensors of several modules are of the same types, that a factor is a number, that no error is caught half-way.
There is no fix where a tensor may come twice, or is given new memory. It needs torch 2.1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint import api
from perflint.api import Blocked, Finding, Fix, Options, Program, Rule

_Loop = ast.For | ast.ListComp | ast.GeneratorExp
_UPDATES = frozenset("mul_ add_ sub_ div_ lerp_ copy_ clamp_ clip_ addcmul_ addcdiv_ zero_ detach_".split())
_CLAMPS = frozenset({"clamp_", "clip_"})
_REDUCED = re.compile(r"norm|(?=.*'sum')(?=.*('grad'|'pow'|'square'|'abs'|Pow\(\)))")
_NORM = re.compile(r"'norm'|'abs'.*'max'|'max'.*'abs'")
_STEPS = re.compile(  # behind the class, if there is one
    r"[._]ema($|_)|moving_average|momentum_update|soft_update|polyak|grad_norm|clip_grad|\.zero_grad$|(EMA|ema|Average)\.update"
)
_COMPUTED = frozenset({"mul", "add", "sub", "div", "lerp", "update_average"})
_HARMLESS = _COMPUTED | frozenset("detach float to type_as view_as numel norm sum item items pow square abs".split())
_HARMLESS |= {f"builtins.{each}" for each in ("float", "len", "min", "max", "isinstance")}
_HARMLESS |= {"is_floating_point", "torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm", "torch.no_grad"}
_PLAIN = (ast.With, ast.If, ast.Expr, ast.Assign, ast.AugAssign, ast.Assert, ast.Continue, ast.Pass)
_TABLES = frozenset({"builtins.dict", "state_dict"})
_WALKED = re.compile(r"param|grads|gradients|^state_dict$", re.IGNORECASE)


class ParamLoop(Rule):
    """Loops over parameters that update each of them by itself."""

    group = "overhead"
    triggers = ("param", "state_dict", "grad")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        loops: Sequence[_Loop] = program.of_type(ast.For, ast.ListComp, ast.GeneratorExp)
        for loop in () if program.is_test or program.is_host_only else loops:
            walked = loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter
            kind = _kind(program, loop)
            if not kind or not _walks_parameters(program, walked) or not _runs_each_step(program, loop, kind):
                continue
            fixes, blocked = api.tried(_fix, program, loop, kind)
            message = "each operation is launched once for each parameter: torch._foreach_* launches it once for all"
            span = api.head_span(program, loop) if isinstance(loop, ast.For) else program.span(loop)
            yield self.finding(span, message, kind=kind, fixes=fixes, blocked=blocked, hot_by=program.hot_by(loop))


def _runs_each_step(program: Program, loop: ast.AST, kind: str) -> bool:
    """Does each step run it, or is its function named for that? Copies alone may be how things are set up."""
    is_hot, is_beside = api.runs_often(program, loop), api.steps_beside(program, loop)
    names = [getattr(each, "name", "") for each in (program.class_around(loop), program.function_of(loop))]
    return (is_hot and is_beside) if kind == "copy" else bool(is_hot or is_beside or _STEPS.search(".".join(names)))


def _walks_parameters(program: Program, walked: ast.expr) -> bool:
    """Does it walk parameters, by what they are called, or a dictionary that is made of them?"""
    keyed = walked.func.value if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Attribute) else walked
    made = api.origins(program, keyed) if isinstance(keyed, ast.Name | ast.Attribute) else []
    calls = [each for each in made if isinstance(each, ast.Call)]
    tables = [each for each in calls if getattr(each.func, "attr", program.qualified(each.func)) in _TABLES]
    nodes = (each for part in (walked, *tables) for each in ast.walk(part))
    words = [str(getattr(e, "attr", getattr(e, "id", getattr(e, "value", "")))) for e in nodes]
    return any(map(_WALKED.search, words)) and not any("emb" in word for word in words)  # embeddings have one


def _kind(program: Program, loop: _Loop) -> str:
    """What the loop does to each of them and nothing else; empty for other loops."""
    if not isinstance(loop, ast.For):
        calls = [each for each in ast.walk(loop.elt) if isinstance(each, ast.Call)]
        names = {getattr(each.func, "attr", "") for each in calls if program.qualified(each.func) not in _HARMLESS}
        text = ast.dump(loop.elt) if names <= _HARMLESS | {"abs", "max"} else ""
        return "norm" if _NORM.search(text) and "'grad'" in text else ""
    own = api.variables_in(loop.target)
    updates, computes = set[str](), False
    for node in (each for part in loop.body for each in ast.walk(part)):
        computes |= isinstance(node, ast.BinOp)
        if isinstance(node, ast.Call):
            method = getattr(node.func, "attr", "")
            if method not in _UPDATES | _HARMLESS and program.qualified(node.func) not in _HARMLESS:
                return ""
            updates |= {method} & _UPDATES
            computes |= method in _COMPUTED
        elif isinstance(node, ast.AugAssign):
            is_own = not own.isdisjoint(api.path_of(node.target).split("."))
            updates |= {"update"} if is_own else {"norm"} if _REDUCED.search(ast.dump(node.value)) else set()
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            adds = isinstance(node.value, ast.BinOp) and api.path_of(node.value.left) == node.targets[0].id
            is_norm = adds and node.targets[0].id not in own and _REDUCED.search(ast.dump(node.value))
            (updates if is_norm else own).add("norm" if is_norm else node.targets[0].id)
        elif isinstance(node, ast.Assign):
            value, target = node.value, node.targets[0]
            computed = isinstance(value, ast.BinOp) or getattr(getattr(value, "func", None), "attr", "") in _COMPUTED
            updates |= {"update"} if computed and getattr(target, "attr", "") == "data" else set()
        elif isinstance(node, ast.stmt) and not isinstance(node, _PLAIN):
            return ""
    if not updates or updates == {"copy_"}:
        return "" if not updates else "update" if computes else "copy"
    return "norm" if "norm" in updates else "clip" if updates <= _CLAMPS else "update"


def _fix(program: Program, loop: _Loop, kind: str) -> Fix:
    if kind == "norm" or not isinstance(loop, ast.For):
        raise Blocked("torch.nn.utils.get_total_norm, or what clip_grad_norm_ gives, is the norm of all of them")
    return api.on_lists(program, loop)
