"""Hugging Face's libraries are handed one example after the other, where they take a batch.

## What it does

Reports *map*, where `map` of a dataset calls a tokenizer for one example at a time; *pipeline* and *generate*, where a
loop over examples runs a pipeline of transformers, or tokenizes one text and generates or runs a model; *tokenize*,
where a list of tokenized texts is made one by one. Left alone are functions that don't tokenize, loops over texts that
are written out or over batches, tokenizers that pad in a loop, and tests.

## Why it is slow

A tokenizer in Rust takes a list of texts on all cores at once. A generated token needs the same weights from memory for
one text as for many, and a small forward pass the same launches.

## Example

```python
data = data.map(lambda example: tokenizer(example["text"]))
for text in texts:
    print(pipe(text))
```

## Use instead

```python
data = data.map(lambda examples: tokenizer(examples["text"]), batched=True)
for result in pipe(texts, batch_size=16):
    print(result)
```

## Fix safety

`behaviour` for *map*, where the function returns what a tokenizer of transformers makes of columns, and nothing else:
`batched=True` gives the same rows, if each of these columns holds one text; a list of texts would be taken for a batch.
The others have no fix: a batch changes what the function, or the loop, is given, texts of a batch are padded (on the
left, to generate), and sampling draws in another order. It is advice: it depends on how many examples there are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Blocked, Finding, Fix, Kind, Options, Program, Rule, Safety, Severity

_TOKENIZER = re.compile(
    r"(^|[._])(tokenizer|processor)(_\w+|\.encode|\.encode_plus|\.apply_chat_template)?$", re.IGNORECASE
)
_MADE = re.compile(r"transformers\.(\w+\.)*\w*Tokenizer\w*\.from_pretrained$")
_ALIKE = frozenset({"truncation", "max_length", "add_special_tokens", "return_attention_mask", "return_token_type_ids"})
_BESIDE = frozenset({"num_proc", "remove_columns", "desc", "load_from_cache_file", "keep_in_memory"})
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_AROUND = (*api.LOOPS, *api.FUNCTIONS, *_COMPREHENSIONS)
_MESSAGES = {
    "map": "the tokenizer is called for one example at a time, which batched=True would hand over as lists",
    "pipeline": "the pipeline runs for one example at a time: it takes a list, or a dataset, and batch_size",
    "tokenize": "the tokenizer is called for one text at a time, where it takes the list of them",
    "generate": "each text goes through the model on its own: a padded batch takes hardly longer than one",
}


class OneExampleAtATime(Rule):
    """Calls for one example, in a loop or of a dataset's `map`."""

    group = "compute"
    severity = Severity.ADVICE
    triggers = ("transformers", "datasets", ".generate(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield each such call."""
        for call in () if program.is_test else program.of_type(ast.Call):
            if kind := _kind(program, call):
                fixes, blocked = api.tried(_fix, program, call, kind)
                yield self.finding(
                    api.call_span(program, call), _MESSAGES[kind], kind=kind, fixes=fixes, blocked=blocked
                )


def _kind(program: Program, call: ast.Call) -> str:
    """Which call for one example it is; empty for others."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "map":
        return "map" if _maps_singly(program, call, call.func.value) else ""
    loop = next((each for each in program.ancestors(call) if isinstance(each, _AROUND)), None)
    walk = loop.generators[0] if isinstance(loop, _COMPREHENSIONS) else loop
    if loop is None or not isinstance(walk, ast.For | ast.comprehension) or not api.walks_examples(program, walk):
        return ""
    items = api.dependents(loop, {each.id for each in ast.walk(walk.target) if isinstance(each, ast.Name)})
    if any(each.endswith(".pipeline") for each in _makers(program, call.func) if each.startswith("transformers.")):
        return (
            "pipeline"
            if _takes_one(call, items) and not any(each.arg == "batch_size" for each in call.keywords)
            else ""
        )
    if isinstance(loop, ast.ListComp):
        is_made = re.search(r"tokenizer(\.encode)?$", api.path_of(call.func))
        return "tokenize" if is_made and call.args and api.reads(call.args[0], items) else ""
    return _kind_in_loop(program, call, loop, items) if isinstance(loop, ast.For) else ""


def _kind_in_loop(program: Program, call: ast.Call, loop: ast.For, items: frozenset[str]) -> str:
    """Does `call`, in a loop over examples, tokenize one of them for a list, or run a model on one tokenized there?"""
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call)]
    singles = [each for each in calls if _tokenizes(program, each) and _takes_one(each, items)]
    if not singles:
        return ""
    models = [each for each in calls if _runs_model(program, each)]
    if models:
        return "generate" if call is models[-1] else ""
    named = {each.id for one in singles for each in _targets(program, one)}
    tokenized = api.dependents(loop, named) - items | named
    kept = [each for each in calls if getattr(each.func, "attr", "") in ("append", "extend") and each.args]
    is_kept = any(api.reads(each.args[0], tokenized) or call in ast.walk(each) for each in kept)
    return "tokenize" if call in singles and is_kept else ""


def _runs_model(program: Program, call: ast.Call) -> bool:
    """Is it `model.generate(...)`, or `model(...)`?"""
    is_module = program.value(call.func).kind is Kind.MODULE and not _tokenizes(program, call)
    return getattr(call.func, "attr", "") == "generate" or is_module


def _targets(program: Program, call: ast.Call) -> list[ast.Name]:
    """The variables to which a call's result is assigned."""
    targets = getattr(program.statement_of(call), "targets", [])
    return [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _fix(program: Program, call: ast.Call, kind: str) -> Fix:
    """`batched=True` for a function that only hands columns to a tokenizer; raises Blocked."""
    function = program.value(call.args[0]).node if kind == "map" else None
    made = _returned(function)
    columns = made.args if made is not None else []
    item = function.args.args[0].arg if isinstance(function, ast.Lambda | ast.FunctionDef) and made is not None else ""
    if made is None or not columns or not all(_is_column(each, item) for each in columns):
        raise Blocked("a batch changes what the function, or the loop, is given")
    if not any(_MADE.match(each) for each in _makers(program, made.func)):
        raise Blocked(f"it isn't known which tokenizer `{program.segment(made.func)}` is", made)
    if any(not _is_alike(each) for each in made.keywords) or not {each.arg for each in call.keywords} <= _BESIDE:
        raise Blocked("an argument means something else for a batch", made)
    keyword = ("batched", api.expression("True"))
    return Fix(
        "add batched=True, if each column holds one text",
        Safety.BEHAVIOUR,
        api.rewrite(program, api.AddKeywords(call, (keyword,))),
    )


def _returned(function: ast.AST | None) -> ast.Call | None:
    """The call that is all that a function of one argument computes."""
    if not isinstance(function, ast.Lambda | ast.FunctionDef) or len(function.args.args) != 1:
        return None
    body = function.body if isinstance(function, ast.FunctionDef) else [ast.Return(function.body)]
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return value if isinstance(value, ast.Call) else None


def _is_column(node: ast.expr, item: str) -> bool:
    is_named = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return is_named and isinstance(node, ast.Subscript) and api.path_of(node.value) == item


def _is_alike(keyword: ast.keyword) -> bool:
    """Does a tokenizer do the same by that to each text of a batch as to a text?"""
    is_padded = keyword.arg == "padding"
    fixed = isinstance(keyword.value, ast.Constant) and keyword.value.value in ("max_length", False)
    return fixed if is_padded else keyword.arg in _ALIKE


def _tokenizes(program: Program, call: ast.Call) -> bool:
    """Is a tokenizer called, by its name or by what made it?"""
    return bool(_TOKENIZER.search(api.path_of(call.func))) or any(map(_MADE.match, _makers(program, call.func)))


def _takes_one(call: ast.Call, items: frozenset[str]) -> bool:
    """Is the call given one of the items, and doesn't pad?"""
    return bool(call.args) and api.reads(call.args[0], items) and not any(k.arg == "padding" for k in call.keywords)


def _makers(program: Program, node: ast.expr) -> set[str]:
    """The functions of libraries whose results `node` may be."""
    return {program.qualified(each.func) for each in api.origins(program, node) if isinstance(each, ast.Call)}


def _maps_singly(program: Program, call: ast.Call, mapped: ast.expr) -> bool:
    """Does a dataset hand a tokenizer one example after the other?"""
    if (
        any(each.arg in ("batched", None) for each in call.keywords)
        or not call.args
        or not api.is_hf_dataset(program, mapped)
    ):
        return False
    function = program.value(call.args[0]).node
    calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)] if function is not None else []
    inner = [each for body in map(program.callee, calls) if body for each in ast.walk(body)]
    calls += [each for each in inner if isinstance(each, ast.Call)]
    return any(_tokenizes(program, each) for each in calls)
