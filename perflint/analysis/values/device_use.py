"""Decides by a file's words where its program computes, on the host alone or on a device too, and what it compiles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint import torch_ops
from perflint.analysis.links import Says
from perflint.analysis.values.values import ELSEWHERE
from perflint.syntax.scopes import bound_names
from perflint.syntax.source import Module
from perflint.syntax.walk import TRIES, path_of

# A seed of the generators of a device is no word of using one.
_DEVICE = re.compile(
    r"cuda(?!\.manual_seed|\.is_available\(\):\s*torch\.cuda\.manual_seed)|device|accelerat|[\"'.](?:mps|xpu|npu)\b"
    r"|ightning|abric|gpu|GPU|DataParallel|horovod|deepspeed"
    r"|\.to\((?!dtype=|torch\.(?:u?int|float|bfloat|double|half|long|bool)|[\w.]+\.dtype)"
)
_DEFAULT = re.compile(r"set_default_device|set_default_tensor_type\(.*cuda")
_BUILDS = re.compile(r"DataLoader\(|\bnn\b")
_TRAINING = ("backward(", "DataLoader(", ".zero_grad(", ".step(")  # of these there are words where it may train
_EVALUATES = re.compile(r"(hub\.load|load_state_dict|\.from_pretrained)\((?s:.*)\.eval\(\)")
# What differentiates twice, forward or by torch.vmap, unless that is about a loss alone.
_TWICE = ("create_graph", "gradient_penalty", "hessian", "hvp", "jvp", "vmap", "is_grads_batched")
_OF_LOSS = re.compile(r"torch\.vmap\([\w.]*(loss|criterion|entropy)\w*\b", re.IGNORECASE)
# What names a format, or a framework with settings of its own; float64 sums up what is reported, too.
_FORMATS = (
    *("autocast", "GradScaler", "tf32", "bf16", "fp16", "torch.float16", "quantization", "quantizer", "Quantizer"),
    *("set_default_dtype", "matmul_precision", "mixed_precision", "--precision", "use_deterministic_algorithms"),
    *("Accelerator", "Fabric(", "deepspeed", "colossal", "megatron", "fairseq", "fastai", "torch_xla."),
)
_SWITCHED = "use no is with enable enabled disable torch cuda native fp do".split()  # `rand_amp` is an amplitude
_FORMAT = re.compile(  # each begins with letters of its own, quickly looked for; `amp_to_db` is of amplitudes
    rf"amp(?:(?<=\bamp)(?:\b|_(?!to_))|(?:{'|'.join(f'(?<={each}_amp)' for each in _SWITCHED)})\b)"
    r"|half(?<=\bhalf)\(|precision=(?<=\bprecision=)"
    r"|import (?:pytorch_)?lightning|from (?:pytorch_)?lightning"
)
_COMPILING = frozenset("script script_method script_if_tracing _script_if_tracing trace trace_module freeze".split())
_SCRIPTS = tuple(f".jit.{name}" for name in _COMPILING)


def says_of(program: Module) -> Says:
    """What a file says: of a device above all."""
    compiles = Says.COMPILES if scripting(program) is not None else Says.NOTHING
    text = program.text
    twice = _differentiates_twice(text) and _differentiates_twice(_OF_LOSS.sub("", text))
    formats = Says.FORMATS if any(map(text.__contains__, _FORMATS)) or _FORMAT.search(text) else Says.NOTHING
    return _of_place(program) | compiles | formats | (Says.TRANSFORMS if twice else Says.NOTHING)


def starts_on_device(program: Module) -> bool:
    """Does the file have tensors made on a device of which nothing else is said?"""
    return _DEFAULT.search(program.text) is not None


def _differentiates_twice(text: str) -> bool:
    return any(word in text for word in _TWICE)


def scripting(program: Module) -> ast.expr | None:
    """Where the file first calls what compiles with torch.jit, decorates with it or hands it on, by whatever name.

    By the names alone: what a file says is asked before their values are known.
    """
    if "jit" not in program.text or not any(name in program.text for name in ("script", "trace", "freeze")):
        return None
    imports = {
        alias.asname or alias.name: f"{'.' * statement.level}{statement.module or ''}.{alias.name}"
        for statement in program.of_type(ast.ImportFrom)
        for alias in statement.names
    }
    modules = {alias.asname: alias.name for each in program.of_type(ast.Import) for alias in each.names if alias.asname}
    known = modules | imports
    called = {name for name, whole in known.items() if f".{whole}".endswith(_SCRIPTS)}
    for node in program.of_type(ast.Name, ast.Attribute) if called else program.of_type(ast.Attribute):
        if isinstance(node, ast.Name):
            if node.id in called:
                return node
        elif isinstance(node, ast.Attribute) and node.attr in _COMPILING:
            root, dot, rest = path_of(node).partition(".")
            if f".{known.get(root, root)}{dot}{rest}".endswith(_SCRIPTS):
                return node
    return None


def _of_place(program: Module) -> Says:
    if _in_code(program, _DEVICE):
        return Says.DEVICE
    says = Says.SCRIPT if program.is_script else Says.NOTHING
    if trains(program):
        says |= Says.TRAINS
    if _in_code(program, _BUILDS):
        says |= Says.BUILDS
    if ".eval()" in program.text and _EVALUATES.search(program.text):
        says |= Says.TRAINS | Says.BUILDS
    return says


def trains(program: Module) -> bool:
    """Does the file build a loader, or call or define what trains: a backward pass, a step, zeroing gradients?"""
    if not any(word in program.text for word in _TRAINING):
        return False
    called = (path_of(each.func) or f".{getattr(each.func, 'attr', '')}" for each in program.of_type(ast.Call))
    return any(
        path.endswith(("DataLoader", ".zero_grad", ".step")) or path.rpartition(".")[2] == "backward" for path in called
    ) or any(each.name == "backward" for each in program.of_type(ast.FunctionDef))


def rebinds_of(program: Module) -> tuple[str, ...]:
    """The names, of those that modules of torch export too, to which the file gives another meaning as it starts."""
    found = set[str]()
    for each in _started(program.tree.body):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            found |= bound_names(each)
    return tuple(sorted(filter(torch_ops.is_exported, found)))


def imported(tree: ast.Module) -> tuple[str, ...]:
    """The dotted names of what a module of a project imports from it as it starts: modules, or what is in them."""
    names = {name for statement in _started(tree.body) for name in imported_names(statement)}
    return tuple(sorted(name for name in names if name.partition(".")[0] not in ELSEWHERE))


def _started(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        yield statement
        for block in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(statement, (ast.If, *TRIES, ast.ExceptHandler)):
                yield from _started(getattr(statement, block, ()))


def imported_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        dot = "." if statement.module else ""
        yield from (f"{module}{dot}{alias.name}" for alias in statement.names)


def _in_code(program: Module, words: re.Pattern[str]) -> bool:
    text = program.text
    documentation: list[tuple[int, int]] | None = None
    for match in words.finditer(text):
        offset = match.start()
        if "#" in text[text.rfind("\n", 0, offset) + 1 : offset]:
            continue
        if documentation is None:
            documentation = [
                (each.lineno, each.end_lineno or each.lineno)
                for each in program.of_type(ast.Expr)
                if isinstance(each.value, ast.Constant)
            ]
        line = text.count("\n", 0, offset) + 1
        if not any(first <= line <= last for first, last in documentation):
            return True
    return False
