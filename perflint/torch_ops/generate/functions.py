"""The table's functions, methods and attributes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perflint.torch_ops.generate import probe, remainder
from perflint.torch_ops.generate.entries import Outcome, entry_text
from perflint.torch_ops.generate.facts import Operator, operators
from perflint.torch_ops.generate.signatures import (
    Overload,
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
    "torch.cuda": "?",
    "torch.distributed": "?",
}
_TENSORS = ("tensor", "tuple", "tensors")
_AUGMENTED = ("iadd", "isub", "imul")
_NOT_FOLLOWING = ("to", "cuda", "cpu")  # they have a device argument, but are moves and create nothing


def functions(torch: Any) -> dict[str, str]:
    """Entries by qualified name."""
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
            text = remainder.FUNCTIONS.get(f"{module_name}.{name}") or _function(
                torch, function, stubs.get(module_name, {}).get(name), prefix + name
            )
            if text:
                found[f"{module_name}.{name}"] = text
    return found


def methods(torch: Any) -> dict[str, str]:
    """Entries of the tensor's methods by name."""
    stub = of_stub(Path(torch.__file__).parent / "_C/__init__.pyi", "TensorBase")
    found = dict(remainder.METHODS)
    for name in dir(torch.Tensor):
        if name in found or not callable(getattr(torch.Tensor, name)) or (name[0] == "_" and name[:2] != "__"):
            continue
        overloads = stub.get(name) or of_callable(getattr(torch.Tensor, name))
        if overloads:
            found[name] = _method(torch, name, overloads)
    for name in remainder.SYNCING_METHODS & found.keys():
        if "syncs" not in found[name].split():
            result, _, rest = found[name].partition(" ")
            found[name] = f"{result} syncs {rest}".strip()
    return found


def attributes(torch: Any) -> dict[str, str]:
    """Entries of the tensor's properties by name."""
    found = {}
    properties = properties_of_stub(Path(torch.__file__).parent / "_C/__init__.pyi", "TensorBase")
    for name, annotation in properties.items():
        result = result_kind(annotation)
        if name[0] != "_" and result != "unknown":
            found[name] = f"{result} view" if result == "tensor" else result
    return found


def _public_functions(module: Any) -> Iterator[tuple[str, Any]]:
    for name in sorted(vars(module)):
        function = vars(module)[name]
        if name[0] != "_" and callable(function) and not inspect.isclass(function):
            yield name, function


def _operator_names(method: str) -> tuple[str, ...]:
    """What the operator behind a method may be called: that of __add__ is add, that of __and__ keeps its name."""
    if not method.startswith("__"):
        return (method,)
    bare = method.strip("_")
    return method, bare[1:] + "_" if bare in _AUGMENTED else bare


def _function(torch: Any, function: Any, stub: list[Overload] | None, operator: str) -> str | None:
    known = operators(torch, operator)
    overloads = stub or [each.overload for each in known] or of_callable(function)
    seen = None
    if inspect.isfunction(function) and overloads and overloads[0].result in _TENSORS:
        seen = probe.observe(torch, function, probe.annotated_parameters(function))
    return _text(operator, overloads, known, seen, method=False) if overloads else None


def _method(torch: Any, name: str, overloads: list[Overload]) -> str:
    known = next((found for each in _operator_names(name) if (found := operators(torch, each))), ())
    unbound = getattr(torch.Tensor, name)
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
    if name.endswith("_") and not name.startswith("_"):
        traits.add("inplace")
    tensors = [each for each in overload.parameters if each.wants in ("tensor", "tensors")]
    device = any(each.name == "device" for each in overload.parameters)
    if device and name not in _NOT_FOLLOWING:
        traits.add("like" if any(each.required for each in tensors) else "factory")
    return traits
