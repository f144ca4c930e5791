"""The table's classes: which kind each is, by its bases, and what calling a module gives."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from perflint.torch_ops import DESCRIBED, as_method, public_class
from perflint.torch_ops.generate import memory, probe
from perflint.torch_ops.generate.functions import OF_BACKENDS, attributes, functions_and_methods, traits_of
from perflint.torch_ops.generate.signatures import of_callable

_PACKAGES = ("torch.nn", "torch.optim", "torch.utils.data", "torch.distributions")
_SKIPPED = (
    *("torch.nn.intrinsic", "torch.nn.qat", "torch.nn.quantizable", "torch.nn.quantized", "torch.nn.attention"),
    "torch.utils.data.datapipes",  # whose bases torch.utils.data exports
)
_EXPORTING = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data", "torch.distributions")

# From the most special base to the most general: the first that fits is the kind.
_BASES = (
    ("torch.nn.modules.rnn", "RNNBase", "rnn"),
    ("torch.nn.modules.rnn", "RNNCellBase", "rnn-cell"),
    ("torch.nn.modules.loss", "_Loss", "loss"),
    ("torch.nn.modules.dropout", "_DropoutNd", "dropout"),
    ("torch.nn.modules.container", "Sequential", "container"),
    ("torch.nn.modules.container", "ModuleList", "container"),
    ("torch.nn.modules.container", "ModuleDict", "container"),
    ("torch.nn.modules.container", "ParameterList", "container"),
    ("torch.nn.modules.container", "ParameterDict", "container"),
    ("torch.nn", "Module", "module"),
    ("torch.optim", "Optimizer", "optimizer"),
    ("torch.optim.lr_scheduler", "LRScheduler", "scheduler"),
    ("torch.optim.lr_scheduler", "ReduceLROnPlateau", "scheduler"),
    ("torch.utils.data", "IterableDataset", "iterable-dataset"),
    ("torch.utils.data", "Dataset", "dataset"),
    ("torch.utils.data", "DataLoader", "loader"),
    ("torch.utils.data", "Sampler", "sampler"),
    ("torch.distributions", "Distribution", "distribution"),
    ("torch.nn", "Parameter", "parameter"),
    ("torch.nn", "Buffer", "parameter"),
    ("torch.nn.parameter", "UninitializedTensorMixin", "parameter"),
)
_MODULES = ("rnn", "rnn-cell", "loss", "dropout", "container", "module")
Table = dict[str, Mapping[str, str | list[str]]]


def classes(torch: Any) -> dict[str, str]:
    """Kinds by qualified name; for a module's class, what its instances return after it."""
    bases = [(getattr(importlib.import_module(module), name), kind) for module, name, kind in _BASES]
    found = {f"torch.{name}": "tensor-type" for name in _tensor_types(torch)}
    found["torch.Tensor"] = found["torch.autograd.Variable"] = "tensor-type"
    for module_name in sorted(_module_names()):
        module = importlib.import_module(module_name)
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or not inspect.isclass(value):
                continue
            kind = next((kind for base, kind in bases if issubclass(value, base)), None)
            if kind:
                qualified = f"{module_name}.{name}"
                found[qualified] = f"{kind} {_forward(torch, qualified, value, kind)}".strip()
    return found


def _tensor_types(torch: Any) -> Iterator[str]:
    for each in torch._tensor_classes:
        module, _, name = f"{each.__module__}.{each.__name__}".rpartition(".")
        if "sparse" not in module:
            yield f"{module}.{name}".removeprefix("torch.")


def _module_names() -> Iterator[str]:
    for package_name in _PACKAGES:
        yield package_name
        package = importlib.import_module(package_name)
        for info in pkgutil.walk_packages(package.__path__, package_name + "."):
            hidden = any(part.startswith("_") for part in info.name.split("."))
            if not hidden and not info.name.startswith(_SKIPPED):
                yield info.name


def _forward(torch: Any, name: str, cls: Any, kind: str) -> str:
    """The entry of a call of an instance; "" if its annotations don't tell."""
    if kind == "rnn":
        return "other"  # the outputs and the state, which for an LSTM is a pair itself
    words = _words(torch, cls) if kind in _MODULES else []
    return " ".join([*words, *memory.of_module(torch, name, cls).words]) if words else ""


@functools.cache  # most classes have several names
def _words(torch: Any, cls: Any) -> list[str]:
    """What a call of an instance returns, and its traits; none if its annotations don't tell."""
    overloads = of_callable(cls.forward)
    if not overloads or overloads[0].result in ("none", "unknown", ""):
        return []
    seen = None
    with contextlib.suppress(Exception):  # most modules can't be made without arguments
        module = cls()
        seen = probe.observe(torch, lambda input: module(input), [("input", "Tensor")])
    applied = re.findall(r"\bF\.(\w+)\(", inspect.getsource(cls.forward))
    by_name = (trait for each in (cls.__name__, *applied) for trait in traits_of(each))
    return [overloads[0].result, *sorted({*by_name, *(seen.traits if seen else ())})]


def distribution_members(torch: Any) -> dict[str, str]:
    """Entries of what the class Distribution declares."""
    found = {}
    for name, value in vars(torch.distributions.Distribution).items():
        getter = value.fget if isinstance(value, property) else value
        overloads = of_callable(getter) if inspect.isfunction(getter) and name[0] != "_" else []
        if overloads and overloads[0].result not in ("unknown", ""):
            found[name] = overloads[0].result + (" random" if name in ("sample", "rsample", "sample_n") else "")
    return found


def exports(entries: Collection[str]) -> dict[str, list[str]]:
    """The names that a star import of each module binds beside `entries`, and with "-" those that it does not."""
    found = {}
    for module_name in _EXPORTING:
        module = importlib.import_module(module_name)
        names = set(getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"])
        names = {name for name in names if not _is_inner(name, getattr(module, name))}
        listed = {name for head, _, name in (each.rpartition(".") for each in entries) if head == module_name}
        hidden = {f"-{name}" for name in listed - names if name[0] != "_"}
        found[module_name] = sorted(names - listed | hidden)
    return found


def _is_inner(name: str, value: Any) -> bool:
    """Is it what implements others, or a class of torch's own compiler, neither of which programs name?"""
    return OF_BACKENDS.match(name) is not None or type(value).__name__ == "pybind11_type"


def build(torch: Any) -> Table:
    """The table of this torch."""
    functions, methods = functions_and_methods(torch)
    kinds = classes(torch)
    return {
        "source": {"torch": torch.__version__.partition("+")[0]},
        "functions": functions,
        "methods": methods,
        "attributes": attributes(torch),
        "distribution": distribution_members(torch),
        "classes": {name: kind for name, kind in kinds.items() if _is_needed(kinds, name)},
        "exports": exports({*functions, *kinds}),
    }


def _is_needed(kinds: Mapping[str, str], name: str) -> bool:
    public = public_class(name)
    return public == name or kinds.get(public) != kinds[name]


def as_text(table: Table) -> str:
    """The table as JSON: by what is said of them, the names of which that holds; of methods those that differ."""
    functions, methods = table["functions"], table["methods"]
    both = {name for name, words in methods.items() if as_method(str(functions.get(f"torch.{name}", ""))) == words}
    own = {name: words for name, words in methods.items() if name not in both}
    sections = {
        name: _by_words(each, both) if name in DESCRIBED else dict(sorted(each.items()))
        for name, each in {**table, "methods": own}.items()
    }
    return json.dumps(sections, indent=0, ensure_ascii=True) + "\n"


def _by_words(section: Mapping[str, Any], both: Collection[str]) -> dict[str, str]:
    """The names in order, shortened as they are read; `both` are functions of torch and methods."""
    found: dict[str, list[str]] = {}
    for name, words in sorted(section.items()):
        found.setdefault(words, []).append(name)
    return {words: " ".join(_shortened(names, both)) for words, names in sorted(found.items())}


def _shortened(names: Iterable[str], both: Collection[str]) -> Iterator[str]:
    before = ""
    for name in names:
        module, _, last = name.rpartition(".")
        if module == "torch" and last in both:
            yield f":{last}"
        else:
            yield name.removeprefix(module) if module and module == before else name
        before = module
