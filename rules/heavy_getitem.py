"""A dataset does work for each sample that it could do once.

## What it does

Reports work in `__getitem__` of a dataset, in functions that it calls, and in those that collate: *device* moves
samples to the device; *file* opens a file that is the same for all, unless it is kept; *parse* parses a text file of
the sample; *tokenize* runs a tokenizer over texts; *resize* brings pictures to one size; *loop* fills an array by
nested loops, or looks up character by character. Functions that collate may pad, resize and loop. Left alone are sizes
that differ, and tests.

## Why it is slow

What a sample needs is computed again in each epoch. A worker that uses the device starts a context of its own there.

## Example

```python
def __getitem__(self, index):
    return self.tokenizer(self.texts[index])
```

## Use instead

```python
def __getitem__(self, index):
    return self.tokens[index]  # made by the constructor, for all texts at once
```

## Fix safety

There is no fix: what can be kept depends on the memory, and on what else is done to a sample. It is advice: it
matters only where the device waits for data.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Kind, Options, Program, Rule, Severity

_OPENING = re.compile(
    r"h5py\.File|lmdb\.open|zipfile\.ZipFile|tarfile\.open|pandas\.read_\w+|json\.load|pickle\.load|yaml\.\w*load"
    r"|numpy\.(load|loadtxt|genfromtxt|memmap)|torch\.load|scipy\.io\.loadmat|builtins\.open"
)
_PARSING = re.compile(r"(xml\.etree\.\w+|ET|ElementTree)\.parse|numpy\.(loadtxt|genfromtxt)|pandas\.read_\w+")
_RESIZING = re.compile(r"cv2\.resize|skimage\.transform\.resize|scipy\.misc\.imresize")
_TOKENIZING = re.compile(
    r"(.*_)?tokenizer(\.\w*(encode|tokenize)\w*)?|processor(\.tokenizer|\.preprocess)?|(.*\.)?text_to_sequence|nltk\.\w+ize"
)
_NUMBERS = frozenset({"builtins.int", "builtins.ord"})
_MESSAGES = {
    "device": "each sample is moved to the device by itself: return it as it is, and move the batch behind the loader",
    "file": "a file that is the same for all samples is opened for each: open it at a worker's first one, and keep it",
    "parse": "a text file is parsed anew in each epoch: parse it once, in `__init__`",
    "tokenize": "the text is tokenized anew in each epoch: tokenize it once, in `__init__`, or store the tokens",
    "resize": "the picture is resized to the same size again in each epoch: store it in that size",
    "loop": "a Python loop goes over the elements of a sample: let numpy or torch do it at once, or do it once",
}
_OBSTACLE = "what can be kept depends on memory"
_OBSTACLES = {"device": "the loop over the loader is to move the batch", "file": "workers have to open it themselves"}


class HeavyGetitem(Rule):
    group = "data"
    severity = Severity.ADVICE
    triggers = ("__getitem__", "ollat")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        is_other = program.is_test or not ("torch" in program.text or program.may_use_device)
        for sample in () if is_other else api.samples(program):
            found: dict[str, ast.AST] = {}
            for node, made, place in sample.work:
                found.setdefault(_kind(program, node, made, collates=sample.is_batch), place)
            for kind, node in found.items():
                if kind and isinstance(node, ast.Call | ast.For | ast.ListComp):
                    part = api.head_span(program, node) if isinstance(node, ast.For) else program.span(node)
                    span = api.call_span(program, node) if isinstance(node, ast.Call) else part
                    yield self.finding(span, _MESSAGES[kind], kind=kind, blocked=_OBSTACLES.get(kind, _OBSTACLE))


def _kind(program: Program, node: ast.AST, made: frozenset[str], *, collates: bool) -> str:
    if isinstance(node, ast.For | ast.ListComp):
        is_loop = _fills(node) if isinstance(node, ast.For) else _encodes(program, node)
        return "loop" if is_loop and not collates else ""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return ""
    name, path, move = program.qualified(node.func), api.path_of(node.func), api.move(program, node)
    if move is not None and move.is_certain and move.like is None:
        target = move.device
        stays = target is not None and (program.value(target).literal == "cpu" or api.reads(target, made))
        return "" if stays else "device"
    if (_PARSING.fullmatch(name) or _PARSING.fullmatch(path)) and api.reads(node, made):
        return "parse"
    if _OPENING.fullmatch(name):
        return "" if api.reads(node, made) or not node.args or _is_kept(program, node) else "file"
    if _TOKENIZING.fullmatch((name or path).removeprefix("self.")):
        return "tokenize"
    if collates:
        return ""
    if path.startswith("self.") and any(_resizes_first(program, each) for each in api.origins(program, node.func)):
        return "resize"
    sizes = node.args[:1] if getattr(node.func, "attr", "") == "resize" and not name else []
    if _RESIZING.fullmatch(name):
        sizes = node.args[1:2] or [each.value for each in node.keywords if each.arg == "dsize"]
    return "resize" if sizes and api.reads(node, made) and not api.reads(sizes[0], made) else ""


def _resizes_first(program: Program, made: ast.AST) -> bool:
    """Is it torchvision's Compose, of which Resize stands in front of what is random?"""
    steps = made.args[0] if isinstance(made, ast.Call) and made.args and "Compose" in ast.unparse(made.func) else None
    names = [program.qualified(getattr(each, "func", each)) for each in getattr(steps, "elts", ())]
    return any(each.endswith(".Resize") and "Random" not in "".join(names[:at]) for at, each in enumerate(names))


def _is_kept(program: Program, call: ast.Call) -> bool:
    """Is it done under a condition, or kept by the object, rather than closed at once?"""
    if isinstance(program.statement_of(call), ast.With):
        return False
    targets = getattr(program.statement_of(call), "targets", ())
    keeps = any(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
    return keeps or any(isinstance(each, ast.If | ast.Try) for each in program.ancestors(call))


def _encodes(program: Program, made: ast.ListComp) -> bool:
    """Is each character of a text, or each token, looked up in a table of the dataset, or made a number?"""
    target, part = made.generators[0].target, made.elt
    if len(made.generators) > 1 or not isinstance(target, ast.Name):
        return False
    if isinstance(part, ast.Subscript):
        return api.path_of(part.value).startswith("self.") and api.path_of(part.slice) == target.id
    given = [api.path_of(each) for each in part.args] if isinstance(part, ast.Call) else []
    if isinstance(part, ast.Call) and re.fullmatch(r"self\..+\.get", api.path_of(part.func)):
        return given[:1] == [target.id]
    is_number = program.call_of(part, *_NUMBERS) is not None
    return is_number and given == [target.id] and program.value(made.generators[0].iter).kind is Kind.STRING


def _fills(loop: ast.For) -> bool:
    """Do two nested loops over numbers fill an array, element by element?"""
    loops = [loop, *(each for each in loop.body if isinstance(each, ast.For))]
    names = [getattr(each.target, "id", "") for each in loops if ast.unparse(each.iter).startswith("range(")]
    stores = (
        each for each in ast.walk(loops[-1]) if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store)
    )
    return len(names) > 1 and any(all(api.reads(each.slice, {name}) for name in names[:2]) for each in stores)
