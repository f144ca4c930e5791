"""Guesses by words: what names and uses make likely, never `sure`; where a program computes, and what it compiles."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache

from perflint import torch_ops
from perflint.analysis.links import Says
from perflint.analysis.values.values import ELSEWHERE, LIKELY_LOADER, LIKELY_MODULE, UNKNOWN, Kind, Place, Value, tensor
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.source import Module
from perflint.syntax.walk import FUNCTIONS, TRIES, Walk, path_of, spans_an_axis

_LOADER = re.compile(  # but not what is called for one
    r"^(?!_*(get|make|create|build|init|setup|prepare)_)(.*_)?((data|train|val|valid|eval|dev|test)_?)?([Ll]oaders?|dl)$"
)
_MODEL = re.compile(  # but not what does something with one, nor what may work on texts, as encoders do
    r"(?!_*(add|build|compile|configure|convert|copy|create|define|eval|evaluate|export|fit|freeze|get|init|load|log|make"
    r"|prepare|print|reset|run|save|set|setup|show|test|train|unwrap|update|wrap)_)"
    r"(\w*_)?(model|net|network|unet|generator|discriminator|critic|actor|policy)(_(ema|target))?$|net[GD]$"
)
_OF_MODULES = frozenset({"eval", "parameters", "named_parameters", "named_modules"})
_OF_CALLED = frozenset({"train", "to", "cuda", "half", "requires_grad_", "state_dict", "load_state_dict"})
_TELLING = _OF_MODULES | _OF_CALLED | {"step", "zero_grad", "backward"}
_FOREIGN = frozenset(
    "view copy all any sum mean max min item tolist reshape transpose squeeze argmax argmin sort astype clip "
    "dot round index count flatten repeat std var fill resize ravel take put swapaxes conj prod cumsum "
    "cumprod partition nonzero diagonal trace choose put_ type to map split add update format strip values "
    "get keys items device shape dtype T data ndim real imag strides nbytes itemsize eval train cpu cuda half "
    "float double apply share_memory dim name names unique trunc is_shared register_hook remove grad sub div "
    "mul eq ne lt gt le ge where size lower log".split()
)
_OF_COLUMNS = frozenset({"unique"})
_SWITCHES = {"train": 1, "eval": 0}  # of a module, and how many arguments they take
_USAGES = frozenset({"size()", "[:, ]"})
_CALLED = "()"  # of what is called like a model

Usage = Mapping[str, Set[str]]

USUAL_NAMES = {  # what a star import of a project's own module passes on
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "np": "numpy",
    "DataLoader": "torch.utils.data.DataLoader",
    "Dataset": "torch.utils.data.Dataset",
    "Variable": "torch.autograd.Variable",
}


@lru_cache(maxsize=1024)
def by_name(name: str) -> Value | None:
    return LIKELY_LOADER if _LOADER.match(name) else None


@lru_cache(maxsize=4096)
def _names_model(name: str) -> bool:
    return _MODEL.match(name) is not None


def usages(file: Walk) -> dict[ast.AST | None, Usage]:
    """Which attributes the body of each function takes of each name; as "[:, ]", slices in several axes.

    What an inner function takes of a name that it doesn't bind, the function around it takes, too.
    """
    found: defaultdict[ast.AST | None, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in file.of_type(ast.Attribute):
        if node.value.__class__ is ast.Name:
            found[file.definition_around(node)][node.value.id].add(node.attr)
    for call in file.of_type(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "size":
            found[file.definition_around(call)][path_of(call.func.value)].add("size()")
        if isinstance(call.func, ast.Name) and _names_model(call.func.id):
            found[file.definition_around(call)][call.func.id].add(_CALLED)
    for part in file.of_type(ast.Subscript):
        if part.value.__class__ is ast.Name and spans_an_axis(part.slice):
            found[file.definition_around(part)][part.value.id].add("[:, ]")
    for inner in [each for each in found if isinstance(each, FUNCTIONS)]:
        function, free = inner, set(found[inner])
        while isinstance(outer := file.definition_around(function), FUNCTIONS):
            free -= local_names(function)
            for name in free:
                found[outer][name] |= found[inner][name]
            function = outer
    return dict(found)


def kind_by_usage(name: str, attributes: Set[str]) -> Value:
    """The likely value of a parameter of which these attributes are taken."""
    if _CALLED in attributes:
        return LIKELY_MODULE
    role = _role(attributes, called="train" in attributes)
    if role is None:
        role = by_name(name) or (tensor(Place.UNKNOWN) if any(map(is_tensor_only, attributes)) else UNKNOWN)
    return role if role.kind is not Kind.TENSOR or all(map(_has_tensor, attributes)) else UNKNOWN


def roles(file: Walk) -> dict[str, Value]:
    """What the names and paths of a file likely are, by what the file does with them: modules, optimizers, losses."""
    attributes, called = file.of_type(ast.Attribute), {*file.called.values()}
    taken: defaultdict[str, set[str]] = defaultdict(set)
    for node in attributes:
        if node.attr in _TELLING and (path := path_of(node.value)):
            taken[path].add(node.attr)
    found = {path: role for path, names in taken.items() if (role := _role(names, path in called)) is not None}
    losses = {path for path, role in found.items() if role.kind is Kind.TENSOR}
    if losses:
        objects = {path_of(node.value) for node in attributes if not _has_tensor(node.attr)}
        read = {path_of(node.value) for node in attributes if node.attr == "item"}
        assigned = [(path_of(target), each) for each in file.of_type(ast.Assign) for target in each.targets]
        read &= {path for path, each in assigned if not isinstance(each.value, ast.Subscript)}
        terms = read & {path for _, each in assigned for path in _terms(each, losses)} - found.keys()
        found |= dict.fromkeys(terms, tensor(Place.DEVICE))
        found = {path: role for path, role in found.items() if role.kind is not Kind.TENSOR or path not in objects}
    modules_at = {path for path, role in found.items() if role.kind is Kind.MODULE}
    bound = (
        (path_of(target), each.value)
        for each in (file.of_type(ast.Assign) if modules_at else ())
        for target in each.targets
    )
    made = {path: _innermost(value) for path, value in bound}
    modules = [call for path, call in made.items() if call and path in modules_at]
    names, makers = {path_of(each.func) for each in modules} - {""}, {_maker_of(each) for each in modules}
    others = ((path, call) for path, call in made.items() if call and path and path not in found)
    twins = (path for path, call in others if path_of(call.func) in names and _maker_of(call) in makers)
    named = (path for path in called if _names_model(path.rpartition(".")[2]))
    likely = dict.fromkeys((*twins, *named), LIKELY_MODULE)
    return likely | found | dict.fromkeys(_trainers(file.called), UNKNOWN)


def _terms(statement: ast.Assign, losses: Set[str]) -> Iterator[str]:
    """The paths that are added up for a loss, each perhaps with a weight that is a number or a setting."""
    pending = [statement.value] if any(path_of(target) in losses for target in statement.targets) else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            sides = [node.left, node.right]
            if isinstance(node.op, ast.Mult | ast.Div):
                weighed = [each for each in sides if not isinstance(each, ast.Constant | ast.Attribute)]
                sides = weighed if len(weighed) == 1 else []
            pending += sides
        elif isinstance(node, ast.UnaryOp):
            pending.append(node.operand)
        else:
            yield path_of(node)


def _innermost(node: ast.expr) -> ast.Call | None:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        node = node.func.value
    return node if isinstance(node, ast.Call) else None


def _maker_of(call: ast.Call) -> str:
    """What makes objects of one sort: a class, or else the whole call."""
    name = path_of(call.func)
    return name if name.rpartition(".")[2][:1].isupper() else ast.unparse(call)


def _trainers(calls: Iterable[ast.Call]) -> Iterator[str]:
    for call in calls:
        if isinstance(call.func, ast.Attribute) and len(call.args) > _SWITCHES.get(call.func.attr, len(call.args)):
            yield path_of(call.func.value)


def _has_tensor(attribute: str) -> bool:
    return (
        attribute in _USAGES
        or torch_ops.of_method(attribute) is not None
        or torch_ops.of_attribute(attribute) is not None
    )


def _role(names: Set[str], called: bool) -> Value | None:
    if "step" in names and "zero_grad" in names:
        return Value(Kind.OPTIMIZER, sure=False)
    if "step" not in names and (names & _OF_MODULES or (called and names & _OF_CALLED) or {"train", "eval"} <= names):
        return LIKELY_MODULE
    return tensor(Place.DEVICE) if "backward" in names else None


def is_tensor_only(attribute: str, *, sliced: bool = False) -> bool:
    """Is it an attribute which tensors have and neither numpy's arrays nor Python's own types nor modules?

    `sliced`: of what was sliced along several axes, which no column of a table is.
    """
    is_foreign = attribute in _FOREIGN and not (sliced and attribute in _OF_COLUMNS)
    return attribute == "size()" or (not is_foreign and torch_ops.of_method(attribute) is not None)


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
_FORMAT = (  # each begins with letters of its own, which are looked for quickly; `amp_to_db` is of amplitudes
    re.compile(rf"amp(?:(?<=\bamp)(?:\b|_(?!to_))|(?:{'|'.join(f'(?<={each}_amp)' for each in _SWITCHED)})\b)"),
    *map(re.compile, (r"half(?<=\bhalf)\(", r"precision=(?<=\bprecision=)")),
    *map(re.compile, ("import (?:pytorch_)?lightning", "from (?:pytorch_)?lightning")),
)
_COMPILING = frozenset("script script_method script_if_tracing _script_if_tracing trace trace_module freeze".split())
_SCRIPTS = tuple(f".jit.{name}" for name in _COMPILING)


def says_of(program: Module) -> Says:
    compiles = Says.COMPILES if scripting(program) is not None else Says.NOTHING
    text = program.text
    twice = _differentiates_twice(text) and _differentiates_twice(_OF_LOSS.sub("", text))
    formats = (
        Says.FORMATS
        if any(map(text.__contains__, _FORMATS)) or any(each.search(text) for each in _FORMAT)
        else Says.NOTHING
    )
    return _of_place(program) | compiles | formats | (Says.TRANSFORMS if twice else Says.NOTHING)


def starts_on_device(program: Module) -> bool:
    """Does the file have tensors made on a device of which nothing else is said?"""
    return _DEFAULT.search(program.text) is not None


def _differentiates_twice(text: str) -> bool:
    return any(word in text for word in _TWICE)


def scripting(program: Module) -> ast.expr | None:
    """Where the file first calls, decorates with or hands on what compiles with torch.jit, by whatever name.

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
    """Does the file build a loader, or call or define what trains?"""
    if not any(word in program.text for word in _TRAINING):
        return False
    called = (path_of(each.func) or f".{getattr(each.func, 'attr', '')}" for each in program.of_type(ast.Call))
    return any(
        path.endswith(("DataLoader", ".zero_grad", ".step")) or path.rpartition(".")[2] == "backward" for path in called
    ) or any(each.name == "backward" for each in program.of_type(ast.FunctionDef))


def rebinds_of(program: Module) -> tuple[str, ...]:
    """The names, of those that modules of torch export too, that mean something else in the file."""
    found = set[str]()
    for each in _started(program.tree.body):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            found |= bound_names(each)
    return tuple(sorted(filter(torch_ops.is_exported, found)))


def imported(tree: ast.Module) -> tuple[str, ...]:
    """The dotted names of what a module of a project imports from it as it starts."""
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
