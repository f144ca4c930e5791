"""Recognises datasets and tokenizers of Hugging Face, and loops over examples, texts or rows of any number."""

from __future__ import annotations

import ast
import re

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind

_DATASETS = re.compile(
    r"datasets\.(load\.|arrow_dataset\.|combine\.|dataset_dict\.)?(load_|Dataset|concatenate|interl)\w*(\.\w+)?"
)
_TOKENIZER = re.compile(r"transformers\.(\w+\.)*\w*Tokenizer\w*\.from_pretrained$")
_BATCH = re.compile(r"batch|chunk|loader|epoch|step", re.IGNORECASE)
_DEPTH = 8  # of methods and items


def is_hf_dataset(program: Program, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Is it made by Hugging Face's datasets, perhaps through methods and items of one?"""
    for each in program.get(Origins).of(node) if depth else ():
        if isinstance(each, ast.Call) and _DATASETS.fullmatch(program.qualified(each.func)):
            return True
        part = each.func if isinstance(each, ast.Call) else each
        if isinstance(part, ast.Attribute | ast.Subscript) and is_hf_dataset(program, part.value, depth - 1):
            return True
    return False


def is_hf_tokenizer(program: Program, node: ast.expr) -> bool:
    """May it be what `from_pretrained` of a tokenizer of transformers has made?"""
    made = (each for each in program.get(Origins).of(node) if isinstance(each, ast.Call))
    return any(_TOKENIZER.match(program.qualified(each.func)) for each in made)


def walks_examples(program: Program, loop: ast.For | ast.comprehension) -> bool:
    """Does the loop walk examples, more than are written out, and no batches?"""
    walked = [each for each in program.get(Origins).of(loop.iter) if isinstance(each, ast.expr)]
    if any(isinstance(each, ast.List | ast.Tuple) and each.elts for each in walked):
        return False
    is_range = isinstance(loop.iter, ast.Call) and program.qualified(loop.iter.func) == "builtins.range"
    is_strided = is_range and isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 3
    nodes = (each for node in (loop.target, loop.iter) for each in ast.walk(node))
    names = " ".join(each.id for each in nodes if isinstance(each, ast.Name))
    return not is_strided and program.value(loop.iter).kind is not Kind.LOADER and not _BATCH.search(names)
