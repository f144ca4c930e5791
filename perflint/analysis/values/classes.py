"""The functions and classes of one file, as the evaluator learns about them, and what their parameters may be."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.links import HotCall
from perflint.analysis.values.hints import Usage, kind_by_usage
from perflint.analysis.values.values import (
    DEVICE_TENSOR,
    GUESSED_TENSOR,
    LIKELY_LOADER,
    LIKELY_MODULE,
    NUMBER,
    NUMPY,
    STRING,
    TENSOR,
    UNKNOWN,
    Kind,
    Place,
    Value,
    join,
    literal,
    mapping,
    sequence_of,
)
from perflint.syntax.scopes import defaults_of, handed_on, is_static
from perflint.syntax.walk import Function, own_nodes, path_of, text_of

_INHERITED = frozenset(
    "training register_buffer register_parameter parameters named_parameters buffers modules children add_module"
    " requires_grad_ load_state_dict".split()
)


@dataclass(eq=False)
class Frame:
    """A scope under evaluation: `env` maps names, and paths such as `self.h`, to what is known of them here.

    `reads` are the facts on which the evaluation depends, by the class and the attribute, the function and "", or None
    and a name of an outer scope; `is_open`: another evaluation may find more in its loops.
    """

    env: dict[str, Value]
    parent: Frame | None = None
    function: FunctionInfo | None = None
    given: dict[str, Value] = field(default_factory=dict)  # the parameters as the evaluation began
    dead: bool = False  # control has left the block under evaluation
    rooted: set[str] = field(default_factory=set)  # the names for which `env` holds longer paths
    outer: set[str] = field(default_factory=set)  # declared global or nonlocal
    shared: dict[str, Value] = field(default_factory=dict)  # what functions inside assign to names of this scope
    reads: dict[tuple[ClassInfo | FunctionInfo | None, str], object] = field(default_factory=dict)
    changes: int = -1  # of the classes, up to this evaluation
    is_open: bool = False

    def bind(self, name: str, value: Value) -> None:
        self.env[name] = join(value, self.shared[name]) if name in self.shared else value
        if name in self.outer and self.parent is not None:
            home = self.parent
            while name not in home.env and home.parent is not None:
                home = home.parent
            home.shared[name] = join(home.shared.get(name, value), value)
            home.env[name] = join(home.env.get(name, value), value)
        self.forget(name)

    def bind_path(self, path: str, value: Value) -> None:
        self.env[path] = value
        self.rooted.add(path.partition(".")[0])

    def forget(self, root: str) -> None:
        """Drop what is known of the attributes of `root`: it is another object, or unknown code changed it."""
        if root in self.rooted:
            for path in [path for path in self.env if path.startswith(f"{root}.")]:
                del self.env[path]

    def lookup(self, name: str) -> Value | None:
        frame: Frame | None = self
        while frame is not None:
            value = frame.env.get(name)
            if value is not None:
                return value
            frame = frame.parent
        return None


@dataclass(eq=False)
class FunctionInfo:
    node: Function
    parent: Frame
    owner: ClassInfo | None = None
    usage: Usage = field(default_factory=dict)  # which attributes the body takes of each name
    arguments: dict[str, Value] = field(default_factory=dict)
    returns: Value | None = None
    yields: Value | None = None
    call_sites: list[ast.Call] = field(default_factory=list)
    frame: Frame | None = None  # of the latest evaluation
    round: int = 0
    active: bool = False
    outside: HotCall | None = None  # the hottest of its calls from other files

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")

    @cached_property
    def parameters(self) -> list[ast.arg]:
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        return defaults_of(self.node)

    @cached_property
    def handed_on(self) -> str:
        return handed_on(self.node)

    def receive(self, arguments: dict[str, Value]) -> bool:
        changed = False
        for name, value in arguments.items():
            joined = join(self.arguments[name], value) if name in self.arguments else value
            if self.arguments.get(name) != joined:
                self.arguments[name] = joined
                changed = True
        return changed


_NAMES_OF_MODULES = ("Module", "Model", "Layer", "Loss", "Criterion", "Net", "Network", "Encoder", "Decoder", "Block")
MODULES = ("module", "loss", "rnn", "rnn-cell", "container", "dropout")
_TRAINER = re.compile(r"(transformers|trl)\.(\w+\.)*\w*Trainer")
_KINDS = {  # of instances, by what the class derives from
    **dict.fromkeys(MODULES, Kind.MODULE),
    **dict.fromkeys(("dataset", "iterable-dataset"), Kind.DATASET),
    "loader": Kind.LOADER,
    "optimizer": Kind.OPTIMIZER,
}


@dataclass(eq=False)
class ClassInfo:
    """A class of the file: `kind` is that of its nearest known base ("module", "dataset", ...), or empty."""

    node: ast.ClassDef
    kind: str = ""
    is_guess: bool = False  # by what it can do: a base that is not known may be a module's
    bases: tuple[ClassInfo, ...] = ()
    base_names: tuple[str, ...] = ()
    subclasses: list[ClassInfo] = field(default_factory=list)
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)

    @property
    def instance(self) -> Value:
        own = {each.kind for each in self.lineage()}
        name = next((each for each in _KINDS if each in own), "")
        return Value(_KINDS.get(name, Kind.INSTANCE), node=self.node, name=name)

    def derive(self, bases: Iterable[ClassInfo], names: Iterable[str]) -> None:
        self.bases = tuple(base for base in bases if self not in base.lineage())  # it may have taken its base's place
        self.base_names = tuple(names)
        self.kind = next(filter(None, map(kind_of_base, self.base_names)), "")
        for base in self.bases:
            if self not in base.subclasses:
                base.subclasses.append(self)

    def guess_kind(self) -> None:
        heads = {name.partition(".")[0] for name in self.base_names}
        is_of_project = heads - {"torch", "builtins"} - sys.stdlib_module_names
        if "forward" in self.methods and is_of_project:
            self.kind, self.is_guess = "module", not any(each.endswith(_NAMES_OF_MODULES) for each in self.base_names)
        elif self.methods.keys() >= {"step", "zero_grad"}:
            self.kind = "optimizer"  # or wraps one

    def acts_as_module(self) -> bool:
        """Do its objects use what modules inherit, hold modules, or what a class builds and `forward` calls?"""
        if any(not _INHERITED.isdisjoint(method.usage.get("self", ())) for method in self.methods.values()):
            return True
        forward = self.methods.get("forward")
        nodes = own_nodes(forward.node) if forward is not None else ()
        called = {path_of(node.func).removeprefix("self.") for node in nodes if isinstance(node, ast.Call)}
        return any(
            value.kind is Kind.MODULE or (name in called and value.name.rpartition(".")[2][:1].isupper())
            for name, value in self.attributes.items()
        )

    def lineage(self) -> Iterator[ClassInfo]:
        yield self
        for base in self.bases:
            yield from base.lineage()

    def method(self, name: str) -> FunctionInfo | None:
        if name in self.methods or not self.bases:
            return self.methods.get(name)
        return next((info.methods[name] for info in self.lineage() if name in info.methods), None)

    def overriding(self, name: str) -> Iterator[FunctionInfo]:
        for info in self.subclasses:
            if name in info.methods:
                yield info.methods[name]
            yield from info.overriding(name)

    def attribute(self, name: str) -> Value | None:
        if name in self.attributes or not self.bases:
            return self.attributes.get(name)
        return next((info.attributes[name] for info in self.lineage() if name in info.attributes), None)

    def assign(self, name: str, value: Value) -> None:
        known = self.attributes.get(name)
        self.attributes[name] = value if known is None else join(known, value)

    def is_a(self, kind: str) -> bool:
        return self.kind == kind or any(base.is_a(kind) for base in self.bases)


def kind_of_base(name: str) -> str:
    """The kind of a class that derives from this library class; empty for others."""
    kind = torch_ops.class_kind(name)
    if kind is not None or name == "torch.autograd.Function":
        return kind or "differentiable"
    if name.startswith("torch.nn.modules."):  # of their private bases
        return "loss" if ".loss." in name else "module"
    if _TRAINER.fullmatch(name):
        return "trainer"
    if name.endswith(("LightningModule", "PreTrainedModel", "PyTorchModelHubMixin", "ModelMixin")):
        return "module"
    return "dataset" if name.startswith("torchvision.datasets") else ""


def joined(environments: list[dict[str, Value]]) -> dict[str, Value]:
    result = dict(environments[0])
    for env in environments[1:]:
        for name, value in env.items():
            known = result.get(name)
            if known is None:
                result[name] = value
            elif known is not value:
                result[name] = join(known, value)
    return result


STEP_METHODS = frozenset(
    {"forward", "loss", "training_step", "validation_step", "test_step", "predict_step", "train_step"}
)
TRAINER_STEPS = frozenset({"compute_loss", "training_step", "_training_step", "prediction_step"})  # of transformers
_ANNOTATIONS = {"int": NUMBER, "float": NUMBER, "bool": NUMBER, "str": STRING}
_CLASSES = {
    **dict.fromkeys(("Tensor", "FloatTensor", "BoolTensor"), TENSOR),
    "LongTensor": TENSOR._replace(dtype="int"),
    "DataLoader": LIKELY_LOADER,
    "Module": LIKELY_MODULE,
    "Optimizer": Value(Kind.OPTIMIZER),
    "ndarray": NUMPY,
}
_SPREAD, _SPREAD_KEYWORDS = sequence_of(UNKNOWN), mapping((), complete=False)  # of `*args` and `**kwargs`
_TOLD = frozenset({"int", "bool", "str"})  # by fields; a loss may be kept in what is annotated as a float


def parameter_values(info: FunctionInfo, place: Place, *, is_demo: bool) -> dict[str, Value]:
    """What the parameters may be, tensors of a module at `place`; a demo only tries out what others use."""
    arguments, parameters, defaults = info.node.args, info.parameters, info.defaults
    is_bound = info.owner is not None and bool(parameters) and not is_static(info.node)
    is_demo = is_demo and info.name in STEP_METHODS and info.owner is not None and info.owner.is_a("module")
    values = {}
    for parameter in parameters[is_bound and parameters[0].arg not in info.arguments :]:
        name = parameter.arg
        given = info.arguments.get(name)
        if given is None or (is_demo and _is_of_host(given)):
            values[name] = _expected(info, parameter, defaults.get(name), place)
        elif given.kind is Kind.NUMBER:  # others may call it with another one
            values[name] = given.varying
        elif given.kind is Kind.UNKNOWN and "." in given.name:  # an object of a class in another file
            likely = _expected(info, parameter, defaults.get(name), place)
            values[name] = likely._replace(name=given.name) if likely.kind is Kind.MODULE else given
        else:
            values[name] = given
        if name in info.arguments and name in defaults:
            values[name] = join(values[name], constant(defaults[name]))
    if info.owner is not None and is_bound and parameters[0].arg not in values:
        values[parameters[0].arg] = info.owner.instance
    if arguments.vararg is not None:
        values[arguments.vararg.arg] = _SPREAD
    if arguments.kwarg is not None:
        values[arguments.kwarg.arg] = _SPREAD_KEYWORDS
    return values


def annotated_fields(info: FunctionInfo) -> dict[str, Value]:
    """The integers, flags and strings in parameters that are annotated with a class of this file, by their paths."""
    values = {}
    for parameter in info.parameters:
        named = info.parent.lookup(path_of(parameter.annotation)) if parameter.annotation is not None else None
        if named is None or not isinstance(named.node, ast.ClassDef):
            continue
        for each in named.node.body:
            if isinstance(each, ast.AnnAssign) and path_of(each.annotation) in _TOLD:
                values[f"{parameter.arg}.{path_of(each.target)}"] = _annotated(each.annotation)
    return values


def _is_of_host(value: Value) -> bool:
    return (value.kind in (Kind.TENSOR, Kind.DEVICE) and value.place is Place.HOST) or value.literal == "cpu"


def _expected(info: FunctionInfo, parameter: ast.arg, default: ast.expr | None, place: Place) -> Value:
    method_of_module = info.owner is not None and (info.owner.is_a("module") or info.owner.is_a("differentiable"))
    annotated = _annotated(parameter.annotation)
    if annotated.kind is Kind.TENSOR:
        return annotated._replace(place=place if method_of_module else Place.UNKNOWN)
    if annotated.kind is not Kind.UNKNOWN:
        return annotated
    if info.owner is not None and info.owner.is_a("dataset"):
        return NUMBER if info.name == "__getitem__" else UNKNOWN
    if default is not None and isinstance(default, ast.Constant) and default.value is not None:
        return constant(default).varying
    attributes = info.usage.get(parameter.arg, frozenset())
    if parameter.arg == "inputs" and info.name in TRAINER_STEPS and info.owner and info.owner.is_a("trainer"):
        return GUESSED_TENSOR._replace(place=place)  # a batch: its parts are tensors
    likely = kind_by_usage(parameter.arg, attributes)
    if method_of_module:
        if likely.kind is Kind.TENSOR:
            return likely._replace(place=place)
        if likely.kind is Kind.UNKNOWN and info.name in STEP_METHODS and parameter.arg != "ctx":
            return (DEVICE_TENSOR if "[:, ]" in attributes else GUESSED_TENSOR)._replace(place=place)
    return likely


def _annotated(annotation: ast.expr | None) -> Value:
    text = text_of(annotation).strip() or (path_of(annotation) if annotation is not None else "")
    return _CLASSES.get(text.rpartition(".")[2], _ANNOTATIONS.get(text, UNKNOWN))


def constant(node: ast.expr | None) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | type(None)):
        return literal(node.value)
    return UNKNOWN
