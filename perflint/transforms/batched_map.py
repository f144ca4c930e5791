"""Hands a tokenizer batches of a dataset, where `map` hands it one example after the other."""

from __future__ import annotations

import ast

from perflint.analysis.data.examples import is_hf_tokenizer
from perflint.analysis.program import Program
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import AddKeywords
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import expression

_ALIKE = frozenset({"truncation", "max_length", "add_special_tokens", "return_attention_mask", "return_token_type_ids"})
_BESIDE = frozenset({"num_proc", "remove_columns", "desc", "load_from_cache_file", "keep_in_memory"})


def batched_map(program: Program, call: ast.Call) -> Fix:
    """`batched=True` for a `map` whose function returns what a tokenizer makes of columns; raises Blocked."""
    function = program.value(call.args[0]).node
    made = _returned(function)
    item = function.args.args[0].arg if isinstance(function, ast.Lambda | ast.FunctionDef) and made is not None else ""
    if made is None or not made.args or not all(_is_column(each, item) for each in made.args):
        raise Blocked("a batch changes what the function is given")
    if not is_hf_tokenizer(program, made.func):
        raise Blocked(f"it isn't known which tokenizer `{program.segment(made.func)}` is", made)
    if not all(map(_is_alike, made.keywords)) or not {each.arg for each in call.keywords} <= _BESIDE:
        raise Blocked("an argument means something else for a batch", made)
    keyword = ("batched", expression("True"))
    title = "add batched=True, if each column holds one text"
    return Fix(title, Safety.BEHAVIOUR, rewrite(program, AddKeywords(call, (keyword,))))


def _returned(function: ast.AST | None) -> ast.Call | None:
    """The call that is all that a function of one argument computes."""
    if not isinstance(function, ast.Lambda | ast.FunctionDef) or len(function.args.args) != 1:
        return None
    body = function.body if isinstance(function, ast.FunctionDef) else [ast.Return(function.body)]
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return value if isinstance(value, ast.Call) else None


def _is_column(node: ast.expr, item: str) -> bool:
    is_item = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return is_item and isinstance(node, ast.Subscript) and path_of(node.value) == item


def _is_alike(keyword: ast.keyword) -> bool:
    """Does a tokenizer do the same by that to each text of a batch as to a text?"""
    if keyword.arg != "padding":
        return keyword.arg in _ALIKE
    return isinstance(keyword.value, ast.Constant) and keyword.value.value in ("max_length", False)
