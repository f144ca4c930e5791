"""Hugging Face's libraries are given one example at a time, where they take a batch.

## What it does

Reports *map*, where `map` of a dataset calls a tokenizer for one example at a time; *pipeline* and *generate*, where a
loop over examples runs a pipeline of transformers, or tokenizes one text and generates or runs a model; *tokenize*,
where a list of tokenized texts is made one by one. Left alone are functions that don't tokenize, loops over texts that
are written out or over batches, texts that are sorted by what they are, tokenizers that pad in a loop, and tests.

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

There is no fix: a batch changes what the function, or the loop, is given, texts of a batch are padded (on the left, to
generate), and sampling draws in another order. It is advice: it depends on how many examples there are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Kind, Options, Program, Rule, Severity

_TOKENIZER = re.compile(
    r"(^|[._])(tokenizer|processor)(_\w+|\.encode|\.encode_plus|\.apply_chat_template)?$", re.IGNORECASE
)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_AROUND = (*api.LOOPS, *api.FUNCTIONS, *_COMPREHENSIONS)
_BATCHED = "a batch changes what the function, or the loop, is given"
_MESSAGES = {
    "map": "the tokenizer is called for one example at a time, which batched=True would hand over as lists",
    "pipeline": "the pipeline runs for one example at a time: it takes a list, or a dataset, and batch_size",
    "tokenize": "the tokenizer is called for one text at a time, where it takes the list of them",
    "generate": "each text goes through the model on its own: a padded batch takes hardly longer than one",
}


class OneExampleAtATime(Rule):
    group = "compute"
    severity = Severity.ADVICE
    triggers = ("transformers", "datasets", ".generate(")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for call in () if program.is_test else program.of_type(ast.Call):
            if kind := _kind(program, call):
                yield self.finding(api.call_span(program, call), _MESSAGES[kind], kind=kind, blocked=_BATCHED)


def _kind(program: Program, call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "map":
        return "map" if _maps_singly(program, call, call.func.value) else ""
    loop = next((each for each in program.ancestors(call) if isinstance(each, _AROUND)), None)
    walk = loop.generators[0] if isinstance(loop, _COMPREHENSIONS) else loop
    if loop is None or not isinstance(walk, ast.For | ast.comprehension) or not api.walks_examples(program, walk):
        return ""
    items = api.dependents(loop, api.variables_in(walk.target))
    if any(each.endswith(".pipeline") for each in _makers(program, call.func) if each.startswith("transformers.")):
        is_single = _takes_one(call, items) and not any(each.arg == "batch_size" for each in call.keywords)
        return "pipeline" if is_single else ""
    if isinstance(loop, ast.ListComp):
        is_made = re.search(r"tokenizer(\.encode)?$", api.path_of(call.func)) and program.callee(call) is None
        return "tokenize" if is_made and call.args and api.reads(call.args[0], items) else ""
    return _kind_in_loop(program, call, loop, items) if isinstance(loop, ast.For) else ""


def _kind_in_loop(program: Program, call: ast.Call, loop: ast.For, items: frozenset[str]) -> str:
    """Does `call` tokenize one example for a list, or run a model on one tokenized in the loop?"""
    inner = list(ast.walk(loop))
    calls = [each for each in inner if isinstance(each, ast.Call)]
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
    is_sorted = any(isinstance(each, ast.If) and each.orelse for each in program.ancestors(call) if each in inner)
    return "tokenize" if call in singles and is_kept and not is_sorted else ""


def _runs_model(program: Program, call: ast.Call) -> bool:
    is_module = program.value(call.func).kind is Kind.MODULE and not _tokenizes(program, call)
    return getattr(call.func, "attr", "") == "generate" or is_module


def _targets(program: Program, call: ast.Call) -> list[ast.Name]:
    targets = getattr(program.statement_of(call), "targets", [])
    return [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _tokenizes(program: Program, call: ast.Call) -> bool:
    if program.callee(call) is not None:
        return False
    return bool(_TOKENIZER.search(api.path_of(call.func))) or api.is_hf_tokenizer(program, call.func)


def _takes_one(call: ast.Call, items: frozenset[str]) -> bool:
    return bool(call.args) and api.reads(call.args[0], items) and not any(k.arg == "padding" for k in call.keywords)


def _makers(program: Program, node: ast.expr) -> set[str]:
    return {program.qualified(each.func) for each in api.origins(program, node) if isinstance(each, ast.Call)}


def _maps_singly(program: Program, call: ast.Call, mapped: ast.expr) -> bool:
    """Does a dataset hand a tokenizer one example after the other?"""
    is_told = any(each.arg in ("batched", None) for each in call.keywords)
    if is_told or not call.args or not api.is_hf_dataset(program, mapped):
        return False
    function = program.value(call.args[0]).node
    calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)] if function is not None else []
    inner = [each for body in map(program.callee, calls) if body for each in ast.walk(body)]
    calls += [each for each in inner if isinstance(each, ast.Call)]
    return any(_tokenizes(program, each) for each in calls)
