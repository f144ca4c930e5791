"""The table's functions, methods and attributes, and what the overloads of one give as text."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflint.torch_ops import IN_PLACE, METHODS, short_name
from perflint.torch_ops.generate import by_hand, memory, probe
from perflint.torch_ops.generate.probe import Operator, operators, schemas
from perflint.torch_ops.generate.signatures import (
    Overload,
    Parameter,
    of_callable,
    of_stub,
    properties_of_stub,
    result_kind,
)

# Modules whose public functions are in the table, and what their operators' names begin with.
MODULES = {
    "torch": "",
    "torch.functional": "",
    "torch.nn.functional": "",
    "torch.linalg": "linalg_",
    "torch.fft": "fft_",
    "torch.special": "special_",
    "torch.nn.init": "?",
    "torch.nn.utils": "?",
    "torch.nn.utils.rnn": "?",
    "torch.autograd": "?",
    "torch.cuda": "?",
    "torch.distributed": "?",
}
_TENSORS = ("tensor", "tuple", "tensors")
_AUGMENTED = ("iadd", "isub", "imul")
_NOT_FOLLOWING = ("to", "cuda", "cpu")  # they have a device argument, but are moves and create nothing
_ALIAS = re.compile(r"^\s*Alias (?:for|of) :(?:func|meth|attr):`~?(?:torch\.)?(?:Tensor\.)?([\w.]+)", re.MULTILINE)
OF_BACKENDS = re.compile(  # what implements others, or copies what they view, for nobody to call; rare polynomials
    r"(cudnn|miopen|mkldnn|native|quantized|q|sym)_|(?!index_)\w+_copy$"
    r"|(airy|(modified_|scaled_modified_|spherical_)*bessel|(shifted_)?chebyshev|hermite|laguerre|legendre)_"
)
_TELLING = ("number", "tensor", "true", "given", "any")
_TRAIT_ORDER = ("pointwise", "reduction", "view", "random", "factory", "like")


@dataclass(frozen=True)
class _Member:
    """A function or a method, what implements it and what calls it."""

    function: Any
    operator: str  # a name in torch.ops.aten, where there is one of it
    overloads: list[Overload]


def functions_and_methods(torch: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Entries of functions by qualified name, and of the tensor's methods by name."""
    members = {**_functions(torch), **_methods(torch)}
    names = _canonical_names({name: member.function for name, member in members.items()})
    found: dict[str, str] = {}
    for name, member in members.items():
        if not name.startswith(METHODS):
            text = by_hand.FUNCTIONS.get(name) or _function(torch, member)
        else:
            text = by_hand.METHODS.get(name.removeprefix(METHODS)) or _method(torch, name, member)
        text = text or ("unknown" if name in by_hand.MEMORY else None)
        if text:
            canonical, short = names[name], short_name(name)
            words = [] if canonical == short else [f"is={IN_PLACE if short == canonical + '_' else canonical}"]
            if name.removeprefix(METHODS) in by_hand.SYNCING_METHODS and "syncs" not in text.split():
                words.append("syncs")
            words += traits_of(names[name]) + (["loss"] if _is_loss(name, member.function) else [])
            words += dim_words(member.overloads, is_method=name.startswith(METHODS))
            words += memory.of_member(
                torch, name, member.function, schemas(torch, member.operator), member.overloads
            ).words
            found[name] = with_words(text, words)
    methods = {name.removeprefix(METHODS): text for name, text in found.items() if name.startswith(METHODS)}
    return {name: text for name, text in found.items() if not name.startswith(METHODS)}, methods


def _functions(torch: Any) -> dict[str, _Member]:
    root = Path(torch.__file__).parent
    stubs = {
        "torch": of_stub(root / "_C/_VariableFunctions.pyi"),
        "torch.nn.functional": of_stub(root / "_C/_nn.pyi") | of_stub(root / "nn/functional.pyi"),
    }
    stubs["torch.functional"] = stubs["torch"]
    found = {}
    for module_name, prefix in MODULES.items():
        module = importlib.import_module(module_name)
        for name, function in _public_functions(module):
            stub = stubs.get(module_name, {}).get(name)
            operator = by_hand.NAMES.get(f"{module_name}.{name}", prefix + name)
            known = operators(torch, operator)
            overloads = stub or [each.overload for each in known] or of_callable(function)
            found[f"{module_name}.{name}"] = _Member(function, operator, overloads)
    return found


def _methods(torch: Any) -> dict[str, _Member]:
    stub = of_stub(Path(torch.__file__).parent / "_C/__init__.pyi", "TensorBase")
    found = {}
    for name in sorted({*dir(torch.Tensor), *by_hand.METHODS}):
        function = getattr(torch.Tensor, name)
        if callable(function) and (name[0] != "_" or name[:2] == "__"):
            overloads = stub.get(name) or of_callable(function)
            operator = next((each for each in _operator_names(name) if operators(torch, each)), "")
            found[METHODS + name] = _Member(function, operator, overloads)
    return found


def traits_of(name: str) -> list[str]:
    """The traits that are known by hand, of an operation of that canonical name."""
    return sorted(trait for trait, names in by_hand.TRAITS.items() if name in names)


def dim_words(overloads: Sequence[Overload], *, is_method: bool) -> list[str]:
    """Where the number of an axis goes; nothing where overloads don't agree."""
    places = {
        f"dim={parameter.name}" if parameter.keyword_only else f"dim={parameter.name}@{index - is_method}"
        for overload in overloads
        for index, parameter in enumerate(overload.parameters)
        if parameter.name in ("dim", "axis")
    }
    named = sorted(places, key=lambda each: "@" not in each)  # one by position is by name as well
    return named[:1] if len({each for each in places if "@" in each}) <= 1 else []


def _is_loss(name: str, function: Any) -> bool:
    """Whether a function of torch.nn.functional says how the losses of a batch become one."""
    if not name.startswith("torch.nn.functional.") or not inspect.isfunction(function):
        return False
    return "reduction" in inspect.signature(function).parameters


def with_words(text: str, words: Sequence[str]) -> str:
    """An entry's text with words more about the call as a whole."""
    base, bar, variants = text.partition(" | ")
    result, _, rest = base.partition(" ")
    return " ".join(filter(None, (result, rest, *words))) + bar + variants


def attributes(torch: Any) -> dict[str, str]:
    """Entries of the tensor's properties by name."""
    found = {}
    properties = properties_of_stub(Path(torch.__file__).parent / "_C/__init__.pyi", "TensorBase")
    for name, annotation in properties.items():
        result = result_kind(annotation)
        if name[0] != "_" and result != "unknown":
            words = traits_of(name) + (["views=self"] if result == "tensor" and name not in by_hand.OWN_TENSORS else [])
            found[name] = with_words(result, words)
    return found


def _public_functions(module: Any) -> Iterator[tuple[str, Any]]:
    for name in sorted(vars(module)):
        function = vars(module)[name]
        is_public = name[0] != "_" or (name.startswith("_foreach_") and module.__name__ == "torch")
        if is_public and callable(function) and not inspect.isclass(function) and not OF_BACKENDS.match(name):
            yield name, function


def _operator_names(method: str) -> tuple[str, ...]:
    """What the operator of a method may be called: that of __add__ is add, that of __and__ keeps its name."""
    if not method.startswith("__"):
        return (method,)
    bare = method.strip("_")
    return method, bare[1:] + "_" if bare in _AUGMENTED else bare


def _function(torch: Any, member: _Member) -> str | None:
    known = operators(torch, member.operator)
    overloads = member.overloads
    if not overloads or not overloads[0].result:
        return None
    seen = None
    if inspect.isfunction(member.function) and overloads[0].result in _TENSORS:
        seen = probe.observe(torch, member.function, probe.annotated_parameters(member.function))
    return _text(member.operator, overloads, known, seen, method=False)


def _method(torch: Any, qualified: str, member: _Member) -> str | None:
    name, unbound, overloads = qualified.removeprefix(METHODS), member.function, member.overloads
    if not overloads or not overloads[0].result:
        return None
    known = operators(torch, member.operator)
    seen = None
    if not known and all(len(each.required) == 1 for each in overloads):
        seen = probe.observe(torch, lambda self: unbound(self), [("self", "Tensor")])
    elif not known and name.startswith("__") and all(len(each.required) == 2 for each in overloads):
        both = [("self", "Tensor"), ("other", "Tensor")]
        seen = probe.observe(torch, lambda self, other: unbound(self, other), both)
    return _text(name, overloads, known, seen, method=True)


def _text(
    name: str,
    overloads: list[Overload],
    known: tuple[Operator, ...],
    seen: probe.Observation | None,
    *,
    method: bool,
) -> str:
    return entry_text(overloads, lambda overload: _outcome(name, overload, known, seen), method=method)


def _outcome(name: str, overload: Overload, known: tuple[Operator, ...], seen: probe.Observation | None) -> Outcome:
    fitting = [each for each in known if set(each.overload.required) == set(overload.required)] or list(known)
    traits = set(frozenset.intersection(*(each.traits for each in fitting))) if fitting else set()
    dtypes = {each.dtype for each in fitting if each.dtype is not None}
    dtypes = dtypes or {each.dtype for each in known if each.dtype is not None}
    syncs = bool(fitting) and all(each.syncs for each in fitting)
    if seen:
        traits |= seen.traits
        dtypes = {seen.dtype}
        syncs = syncs or seen.syncs
    if overload.result not in _TENSORS:
        return Outcome(overload.result, syncs=syncs)
    dtype = dtypes.pop() if len(dtypes) == 1 and overload.result == "tensor" else ""
    return Outcome(overload.result, dtype, syncs, frozenset(traits | _by_signature(name, overload)))


def _by_signature(name: str, overload: Overload) -> set[str]:
    """Traits which the names and parameters alone tell."""
    traits = set()
    tensors = [each for each in overload.parameters if each.wants in ("tensor", "tensors")]
    device = any(each.name == "device" for each in overload.parameters)
    if device and name not in _NOT_FOLLOWING:
        traits.add("like" if any(each.required for each in tensors) else "factory")
    return traits


def _canonical_names(members: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """The short canonical name of each function and method, by qualified names; methods begin with torch.Tensor.

    What torch documents as "Alias for :func:`...`" is one operation (its other registries are incomplete, or can't be
    imported without its test suite's needs), and so is what has one name as function, method and operator, as
    torch.relu and torch.nn.functional.relu, or torch.add, Tensor.add, Tensor.add_, Tensor.__add__ and Tensor.__iadd__.
    """
    plain = {name: by_hand.NAMES.get(name) or _plain(short_name(name), members) for name in members}
    groups: dict[str, set[str]] = defaultdict(set)
    targets = set()
    for name, member in members.items():
        group = {plain[name]}
        alias = None if name in by_hand.NAMES else _ALIAS.search(str(getattr(member, "__doc__", "") or ""))
        if alias and (target := _plain(short_name("torch." + alias[1]), members)) in plain.values():
            targets.add(target)
            group.add(target)
        for each in list(group):
            group |= groups[each]
        for each in group:
            groups[each] = group
    return {
        name: min(groups[each], key=lambda it: (it.count("."), it not in targets, it)) for name, each in plain.items()
    }


def _plain(name: str, members: Iterable[str]) -> str:
    """The name without the marks of operators and of writing in place, where there is a function without them."""
    if name.startswith("__"):
        bare = name.strip("_")
        return by_hand.OPERATORS.get(bare) or by_hand.OPERATORS.get(bare[1:], name)
    if name.endswith("_") and "." not in name:
        homes = ("torch.", "torch.nn.functional.", METHODS)
        return name[:-1] if any(home + name[:-1] in members for home in homes) else name
    return name


@dataclass(frozen=True)
class Outcome:
    """What one overload gives."""

    result: str
    dtype: str = ""
    syncs: bool = False
    traits: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The outcome as `perflint.torch_ops` reads it."""
        words = [self.result]
        words += [f"dtype={self.dtype}"] if self.dtype else []
        words += ["syncs"] if self.syncs else []
        return " ".join(words + [trait for trait in _TRAIT_ORDER if trait in self.traits])

    @property
    def key(self) -> tuple[str, bool, bool]:
        """Overloads which agree in this are one: the rest of their traits is put together."""
        return self.result, self.syncs, "pointwise" in self.traits


def entry_text(overloads: Sequence[Overload], outcome_of: Callable[[Overload], Outcome], *, method: bool) -> str:
    """The entry of a function with these overloads."""
    groups: dict[tuple[str, bool, bool], list[tuple[Overload, Outcome]]] = {}
    for overload in sorted(overloads, key=lambda each: len(each.required)):
        outcome = outcome_of(overload)
        groups.setdefault(outcome.key, []).append((overload, outcome))
    base, *others = groups.values()
    variants: list[str] = []
    seen = [overload for overload, _ in base]
    for group in others:
        rest = [overload for other in others if other is not group for overload, _ in other]
        conditions = dict.fromkeys(_condition(overload, seen, rest, method) for overload, _ in group)
        variants += [f"{condition} {_together(group).text}" for condition in conditions if condition]
    return " | ".join([_together(base).text, *variants])


def _together(group: Sequence[tuple[Overload, Outcome]]) -> Outcome:
    outcomes = [outcome for _, outcome in group]
    dtypes = {outcome.dtype for outcome in outcomes}
    traits = frozenset().union(*(outcome.traits for outcome in outcomes))
    return Outcome(outcomes[0].result, dtypes.pop() if len(dtypes) == 1 else "", outcomes[0].syncs, traits)


def _condition(overload: Overload, base: Sequence[Overload], rest: Sequence[Overload], method: bool) -> str:
    """Which argument tells that a call is this overload and not one of `base`; "" if none does."""
    for index, parameter in sorted(enumerate(overload.parameters), key=lambda each: not each[1].required):
        if parameter.wants not in _TELLING or (method and index == 0):
            continue
        if any(_same(_rival(other, index, parameter), parameter) for other in base):
            continue
        alone = not any(_rival(other, index, parameter) for other in [*base, *rest])
        position = "" if parameter.keyword_only else str(index - method)
        wants = "given" if alone and parameter.wants != "true" else parameter.wants
        return f"{parameter.name}@{position}:{wants}" if wants != "any" else ""
    return ""


def _rival(other: Overload, index: int, parameter: Parameter) -> Parameter | None:
    """The parameter of `other` that an argument for `parameter` would go to."""
    for each in other.parameters:
        if each.name == parameter.name:
            return None if each.wants == "absent" else each
    if parameter.keyword_only or index >= len(other.parameters):
        return None
    rival = other.parameters[index]
    return None if rival.keyword_only or rival.wants == "absent" else rival


def _same(rival: Parameter | None, parameter: Parameter) -> bool:
    return rival is not None and (rival.wants == parameter.wants or "any" in (rival.wants, parameter.wants))
