"""Computes attention by torch's fused kernels, `scaled_dot_product_attention`."""

from __future__ import annotations

import ast
import re

from perflint.analysis.data.origins import Attributes
from perflint.analysis.links import Says
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.dispatch import registers_hooks
from perflint.analysis.memory.view_writes import asks_for_layout
from perflint.analysis.program import Kind, Program
from perflint.analysis.values.attention import Attention, factors
from perflint.analysis.values.numbers import is_number
from perflint.analysis.values.operations import operation
from perflint.analysis.values.shapes import Shapes
from perflint.syntax.scopes import bind
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import integer, path_of
from perflint.transforms.operations import (
    FIT,
    Operation,
    Replace,
    ReplaceStatements,
    expression,
    in_rows,
    new,
    reference,
)
from perflint.transforms.rewrite import Blocked, of_torch, rewrite

_NAME = "scaled_dot_product_attention"
_INFINITE = ("float('-inf')", "-float('inf')", "-math.inf", "-torch.inf", "-np.inf", "-inf")
_ROOTS = frozenset({"math.sqrt", "numpy.sqrt"})
_SCORES = re.compile(r"(\w*)(\w)(\w),\1(\w)\3->\1\2\4")
_WEIGHED = re.compile(r"(\w*)(\w)(\w),\1\3(\w)->\1\2\4")
_ALL_BUFFERS = frozenset({"buffers", "named_buffers", "_buffers", "functional_call"})
_MASKED = "a mask, bias or cast may differ from the kernel's: in rows that are masked wholly, or in its type"


def fused_attention(program: Program, found: Attention) -> Fix:
    """The one call, in place of the product with the values; `scale` needs torch 2.1.

    Raises Blocked where results differ: the scale may be a tensor, a causal mask may be of other lengths for queries
    and keys, or a mask may leave nothing of a row.
    """
    _check_modules(program, found)
    query, turned = _of_matrices(program, found.first, _SCORES)
    weights, value = _of_matrices(program, found.last, _WEIGHED)
    if program.value(found.softmax.func).name == "torch.nn.Sequential" or path_of(query).startswith("self."):
        raise Blocked("dropout in a sequence of modules, or queries for all samples, need another form")
    if weights is not found.weights:
        raise Blocked("the values are in front of the weights")
    _check_softmax(program, found)
    key = turned if "einsum" in ast.unparse(found.first).partition("(")[0] else _key(program, turned)
    scaled, assumed = _scaled(program, found, _sizes(program, query, key, turned))
    keywords = [*_dropped(program, found), *scaled]
    gone = _leading_statements(program, found)
    _check_heads(program, found, query)
    _check_layout(program, found)
    if program.is_said(Says.TRANSFORMS):  # asked last: the answer is other files', and has this one checked again
        raise Blocked("the fused kernels can't be differentiated twice")
    names = program.of_type(ast.Name, ast.Attribute)
    modules = (path_of(each) for each in names if program.qualified(each) == "torch.nn.functional" and path_of(each))
    called = next((expression(f"{each}.{_NAME}") for each in modules), None)
    called = called or of_torch(program, f"nn.functional.{_NAME}", found.last)
    made = expression("{called}({query}, {key}, {value})", called=called, query=query, key=key, value=value)
    assert isinstance(made, ast.Call)
    made.keywords = [ast.keyword(*each) for each in keywords]
    change = rewrite(program, *_changes(program, found, gone, in_rows(made, FIT)))
    if not _has_rows(program, found, query):
        assumed.append("the queries are no vector")
    module = path_of(found.softmax.func)
    if module.startswith("self.") and program.value(found.softmax.func).kind is Kind.MODULE:
        assumed.append(f"`{module}` may be left unused")
    proviso = f", if {' and '.join(assumed)}" if assumed else ""
    proviso += ", whose dropout draws other random numbers" if found.kept else ""
    safety = Safety.BEHAVIOUR if found.kept or assumed else Safety.ROUNDING
    return Fix(f"compute it by one kernel{proviso}: {_NAME}", safety, change)


def _check_modules(program: Program, found: Attention) -> None:
    for call in (found.softmax, *found.kept):
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and path_of(func.value) == "self":
            if not program.get(Attributes).is_own(func):
                raise Blocked(f"others may replace `{path_of(func)}`", func)
            if registers_hooks(program):
                raise Blocked(f"a hook may see what `{path_of(func)}` gives", func)


def _has_rows(program: Program, found: Attention, query: ast.expr) -> bool:
    made, softmax = operation(program, found.first), operation(program, found.softmax)
    if made is not None and made.name in ("einsum", "bmm"):
        return True
    dim = integer(softmax.dim) if softmax is not None else None
    return dim in (2, 3) or program.get(Shapes).least(query) > 1


def _check_softmax(program: Program, found: Attention) -> None:
    if found.axis != -1 and program.get(Shapes).shape(found.scores).rank != found.axis + 1:
        raise Blocked(f"it isn't known whether axis {found.axis} is that of the keys: -1 is", found.softmax)
    is_function = found.scores in found.softmax.args
    if len(found.softmax.args) > 1 + is_function or any(each.arg == "dtype" for each in found.softmax.keywords):
        raise Blocked(_MASKED, found.softmax)


def _check_heads(program: Program, found: Attention, query: ast.expr) -> None:
    made = operation(program, found.first)
    if (made is not None and made.name == "bmm") or (program.get(Shapes).shape(query).rank or 4) < 4:
        raise Blocked("the fused kernels take four axes: give queries, keys and values one of heads, by `unsqueeze(1)`")


def _check_layout(program: Program, found: Attention) -> None:
    """The kernels' result has the queries' layout, a product's has its shape's."""
    if next(program.get(Memory).writes_after(found.last, found.last), None) is not None:
        raise Blocked("what is written to the result may depend on its layout, which is that of the queries")
    if asks_for_layout(program, found.last):
        raise Blocked("the result would have the layout of the queries: use `.reshape` where `.view` is called on it")


def _changes(program: Program, found: Attention, gone: tuple[ast.stmt, ...], made: ast.Call) -> list[Operation]:
    last, name = program.statement_of(found.last), getattr(found.weights, "id", "")
    others = {each.id for each in ast.walk(last) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name) and last.targets[0].id not in others:
        name = last.targets[0].id
    if not gone:
        return [Replace(found.last, made)]
    if not name or (isinstance(last, ast.Return) and last.value is found.last):
        return [Replace(found.last, made), ReplaceStatements(gone, ())]
    if isinstance(last, ast.Assign) and last.value is found.last:
        return [ReplaceStatements((*gone, last), (new(ast.Assign(last.targets, made)),))]
    given = new(ast.Assign([reference(name, ast.Store())], made))
    return [ReplaceStatements(gone, (given,)), Replace(found.last, reference(name))]


def _leading_statements(program: Program, found: Attention) -> tuple[ast.stmt, ...]:
    nodes = (found.first, *found.steps, found.softmax, *found.kept)
    last = program.statement_of(found.last)
    leading = sorted({program.statement_of(each) for each in nodes} - {last}, key=lambda each: each.lineno)
    block = program.block_of(last)
    end = next(number for number, each in enumerate(block) if each is last)
    if [*block[max(end - len(leading), 0) : end]] != leading:
        raise Blocked("its steps don't follow each other, or are left out at times")
    for each in leading:
        if not isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign):
            raise Blocked("its steps are more than assignments")
    return tuple(leading)


def _of_matrices(program: Program, product: ast.expr, equation: re.Pattern[str]) -> tuple[ast.expr, ast.expr]:
    made, pair = operation(program, product), factors(program, product)
    written = getattr(made.tensor, "value", "") if made is not None and made.name == "einsum" else None
    if pair is None or (written is None and made is not None and made.name not in ("matmul", "bmm")):
        raise Blocked("it is not known which axes are multiplied")
    if written is not None and not equation.fullmatch(str(written).replace(" ", "")):
        raise Blocked("its equations are about other axes than the last two")
    return pair


def _key(program: Program, turned: ast.expr) -> ast.expr:
    made = operation(program, turned)
    if made is not None and made.name == "transpose" and made.tensor is not None:
        axes = sorted(integer(each) or 0 for each in made.arguments)
        rank = program.get(Shapes).shape(made.tensor).rank
        if axes == [-2, -1] or (rank is not None and axes == [rank - 2, rank - 1]):
            return made.tensor
    if made is not None and made.name == "permute" and made.tensor is not None:
        order = [axis for each in made.arguments if (axis := integer(each)) is not None]
        if len(order) > 1 and order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
            return made.tensor
    if not isinstance(turned, ast.Name):
        raise Blocked(f"it is not known whether `{program.segment(turned)}` exchanges the last two axes")
    return expression("{turned}.transpose(-2, -1)", turned=turned)


def _sizes(program: Program, query: ast.expr, key: ast.expr, turned: ast.expr) -> tuple[set[str], set[str]]:
    asked, keyed = (program.get(Shapes).shape(each) for each in (query, turned))
    rows, size = (-2, -1) if key is turned else (-1, -2)
    return {asked.size(-2), keyed.size(rows)}, {asked.size(-1), keyed.size(size)}


def _dropped(program: Program, found: Attention) -> list[tuple[str, ast.expr]]:
    if not found.kept:
        return []
    (call, *others) = found.kept
    assert isinstance(call, ast.Call)
    module, made = program.value(call.func), operation(program, call)
    if not others and module.name == "torch.nn.Dropout" and module.sure and path_of(call.func):
        return [("dropout_p", expression("{drop}.p if {drop}.training else 0.0", drop=call.func))]
    given = bind(call, ("input", "p", "training", "inplace"))
    share, training = given.get("p"), given.get("training")
    if others or made is None or made.name != "dropout" or share is None:
        raise Blocked("the weights are changed by more than torch's own dropout")
    if training is None:
        return [("dropout_p", share)]
    return [("dropout_p", expression("{share} if {training} else 0.0", share=share, training=training))]


def _scaled(
    program: Program, found: Attention, sizes: tuple[set[str], set[str]]
) -> tuple[list[tuple[str, ast.expr]], list[str]]:
    scales = list[tuple[ast.expr, bool]]()
    masks = list[ast.AST]()
    for step in found.steps:
        scale = _scale(program, step)
        if scale is None and not _is_causal(program, step, sizes[0]):
            raise Blocked(_MASKED, step)
        scales += [scale] if scale is not None else []
        masks += [step] if scale is None else []
    if len(scales) > 1 or len(masks) > 1:
        raise Blocked("the scores are scaled or masked several times")
    keywords = [("is_causal", expression("True"))] if masks else []
    if scales and _is_default(program, *scales[0], sizes[1]):
        return keywords, []
    number, divides = scales[0] if scales else (expression("1.0"), False)
    assumed = [f"`{program.segment(number)}` is a number" for number, _ in scales if not is_number(program, number)]
    return [*keywords, ("scale", expression("1 / {number}", number=number) if divides else number)], assumed


def _scale(program: Program, step: ast.AST) -> tuple[ast.expr, bool] | None:
    if isinstance(step, ast.AugAssign):
        operands = [step.value]
    elif isinstance(step, ast.BinOp):
        operands = [step.right, step.left]
    else:
        return None
    if not isinstance(step.op, ast.Mult | ast.Div):
        return None
    for each in operands[: 1 if isinstance(step.op, ast.Div) else 2]:
        if is_number(program, each) or _root(program, each) or _inverse_root(program, each):
            return each, isinstance(step.op, ast.Div)
    if not any(path_of(each) for each in operands):
        return None
    raise Blocked("the scale may be a tensor", step)


def _root(program: Program, node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.right) == "0.5":
        return node.left
    root = program.call_of(node, *_ROOTS)
    return root.args[0] if root is not None and len(root.args) == 1 else None


def _inverse_root(program: Program, node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and ast.unparse(node.right) == "-0.5":
        return node.left
    is_inverse = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and ast.unparse(node.left) in ("1", "1.0")
    return _root(program, node.right) if isinstance(node, ast.BinOp) and is_inverse else None


def _is_default(program: Program, scale: ast.expr, divides: bool, sizes: set[str]) -> bool:
    size = _root(program, scale) if divides else _inverse_root(program, scale)
    return size is not None and program.get(Shapes).size(size) in sizes


def _is_causal(program: Program, step: ast.AST, lengths: set[str]) -> bool:
    made = operation(program, step)
    if made is None or made.name != "masked_fill" or len(made.arguments) != 2:
        return False
    mask, filled = made.arguments
    if ast.unparse(filled) not in _INFINITE or not isinstance(mask, ast.Compare) or ast.unparse(mask)[-5:] != " == 0":
        return False
    part = mask.left
    axes = part.slice.elts[-2:] if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Tuple) else []
    ends = [each.upper if isinstance(each, ast.Slice) and each.lower is None else None for each in axes]
    sizes = lengths | {program.get(Shapes).size(each) if each is not None else "" for each in ends}
    return len(ends) == 2 and len(sizes) == 1 and "" not in sizes and _is_triangle(program, part)


def _is_triangle(program: Program, node: ast.expr) -> bool:
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute):
        return False
    path = path_of(node.value)
    if _is_changed(program, node.value):
        raise Blocked(f"others may change or replace `{path}`", node)
    for call in program.of_type(ast.Call):
        given = bind(call, ("name", "tensor")) if path_of(call.func) == "self.register_buffer" else None
        name, tensor = (given.get("name"), given.get("tensor")) if given is not None else (None, None)
        if tensor is not None and isinstance(name, ast.Constant) and f"self.{name.value!s}" == path:
            made = [each for part in ast.walk(tensor) if (each := operation(program, part)) is not None]
            lower = next((each for each in made if each.name == "tril"), None)
            is_plain = lower is not None and not lower.arguments and not lower.call.keywords
            views = (each for each in made if each.name not in ("tril", "ones"))
            return is_plain and all(each.name in ("view", "reshape") for each in views)
    return False


def _is_changed(program: Program, buffer: ast.Attribute) -> bool:
    attributes = program.get(Attributes)
    if not attributes.is_own(buffer) or any(each.attr in _ALL_BUFFERS for each in program.of_type(ast.Attribute)):
        return True
    for key in program.of_type(ast.Constant):
        parent = program.parent(key) if isinstance(key.value, str) else None
        if isinstance(parent, ast.Dict | ast.Subscript) and str(key.value).rpartition(".")[2] == buffer.attr:
            return True
    return any(not _is_compared(program, each) for each in attributes.readers(buffer))


def _is_compared(program: Program, read: ast.Attribute) -> bool:
    parent = program.parent(read)
    around = program.parent(parent) if isinstance(parent, ast.Subscript) else parent
    return isinstance(around, ast.Compare)
