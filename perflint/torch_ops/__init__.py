"""What torch's operations do: one table, generated from torch and completed by hand.

It gives an Operation by its name in a program; nothing else in perflint lists names of torch's operations. `python -m
perflint.torch_ops.generate` writes it, torch_table.json, out of an installed torch; see there for where each fact comes
from, and generate/by_hand.py for what torch doesn't tell. A name that is not in the table is unknown.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perflint.syntax.walk import grouped
from perflint.torch_ops.operation import (
    CALL_TRAITS,
    FALSE,
    NONE,
    NUMBER,
    OTHER,
    RECEIVER,
    TENSOR,
    TRAITS,
    TRUE,
    UNKNOWN,
    Argument,
    Operation,
    Trait,
    Variant,
)

PATH = Path(__file__).with_name("torch_table.json")
DESCRIBED = ("functions", "methods", "attributes", "distribution", "classes")  # sections of names

_TRAITS = frozenset(TRAITS)
METHODS = "torch.Tensor."  # what qualified names of methods begin with
IN_PLACE = "_"  # what is said for the canonical name of an operation that is called so but for the underscore behind it
_PACKAGES = ("torch.nn.modules", "torch.optim", "torch.utils.data", "torch.distributions")  # whose classes they export
_UNNAMED = ("torch.nn.functional.", "torch.functional.", METHODS, "torch.")  # what short names go without


@functools.cache
def of_function(qualified: str) -> Operation | None:
    """What a function does, by its public name, as "torch.cat", "torch.nn.functional.relu" or "torch.Tensor.add"."""
    if qualified.startswith(METHODS):
        method = of_method(qualified.removeprefix(METHODS))
        return None if method is None else method.unbound()
    return _operation("functions", qualified)


@functools.cache
def of_method(name: str) -> Operation | None:
    return _operation("methods", name)


@functools.cache
def of_attribute(name: str) -> Operation | None:
    """What reading a property of torch.Tensor gives, as "shape" or "T"."""
    return _operation("attributes", name)


def of_distribution(name: str) -> Operation | None:
    """What a method or property of the classes in torch.distributions does."""
    return _operation("distribution", name)


@functools.cache
def of_forward(qualified: str) -> Operation | None:
    """What calling an instance of a module's class does; None if unknown."""
    words = _class_text(qualified).partition(" ")[2]
    return _decode(words, qualified) if words else None


@functools.cache
def of_name(name: str) -> Operation | None:
    """What a method or function of torch does by its last name alone, where it isn't known which it is."""
    return of_method(name) or of_function(f"torch.{name}") or of_function(f"torch.nn.functional.{name}")


@functools.cache
def does(name: str, trait: Trait) -> bool:
    operation = of_name(name)
    return operation is not None and operation.does(trait)


@functools.cache
def writes_in_place(method: str) -> bool:
    """Whether a method of that name changes its object; if not a tensor's, as torch's convention has it."""
    operation = of_method(method)
    if operation is not None:
        return operation.in_place
    return method.endswith("_") and not method.startswith("_")


def canonical(qualified: str) -> str:
    """The one short name of a function and its aliases, "cat" for torch.concat; "" for unknown ones."""
    operation = of_function(qualified)
    return "" if operation is None else operation.name


def class_kind(qualified: str) -> str | None:
    """What kind of class a public name is; None if it is not a class of torch that the table knows.

    One of module, rnn, rnn-cell, loss, container, dropout, optimizer, scheduler, dataset, iterable-dataset, loader,
    sampler, distribution, parameter, tensor-type (torch.FloatTensor).
    """
    return _class_text(qualified).partition(" ")[0] or None


def public_class(qualified: str) -> str:
    """The name by which a package exports a class of one of its modules: "torch.nn.ReLU" for all of its names."""
    package = next((each for each in _PACKAGES if qualified.startswith(f"{each}.")), None)
    return f"{package.removesuffix('.modules')}.{qualified.rpartition('.')[2]}" if package else qualified


def _class_text(qualified: str) -> str:
    classes: dict[str, str] = table()["classes"]
    return classes.get(qualified) or classes.get(public_class(qualified), "")


@functools.cache
def exports(module: str) -> frozenset[str]:
    """The names which `from module import *` binds, of modules that are usually imported so."""
    known = table()
    if module not in known["exports"]:
        return frozenset()
    others = known["exports"][module]
    listed = {*_members().get(module, ()), *others}
    return frozenset(name for name in listed if name[0] != "-" and f"-{name}" not in others)


@functools.cache
def _members() -> Mapping[str, Collection[str]]:
    names = (each.rpartition(".") for section in ("functions", "classes") for each in table()[section])
    return grouped((module, name) for module, _, name in names if name[0] != "_")


def is_exported(name: str) -> bool:
    """Does one of these modules export a name like that?"""
    return name in _exported()


@functools.cache
def _exported() -> frozenset[str]:
    return frozenset().union(*map(exports, table()["exports"]))


def short_name(qualified: str) -> str:
    """The name of a function without the package that holds most: "cat", "linalg.norm", "nn.init.ones_"."""
    return next((qualified[len(each) :] for each in _UNNAMED if qualified.startswith(each)), qualified)


@functools.cache
def table() -> dict[str, Any]:
    """The sections of the table: what it says of each name, `exports` by module, and its `source`."""
    sections = json.loads(PATH.read_bytes())
    named = {name: dict(_by_name(each)) if name in DESCRIBED else each for name, each in sections.items()}
    for words, names in sections["functions"].items():
        named["methods"] |= {name[1:]: as_method(words) for name in names.split(" ") if name[0] == ":"}
    return named


def as_method(words: str) -> str:
    """What is said of a function, for a method that does the same: of the first argument, and without `out`."""
    words = re.sub(r" writes=out(\[\])?(?= |$)", "", words)
    return re.sub(r"@(\d+)", lambda at: f"@{int(at[1]) - 1}", re.sub(r"\w+@0\b", RECEIVER, words))


def _by_name(section: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each name with what is said of it: a `.name` is of the same module as the one before it, a `:name` of torch."""
    for words, names in section.items():
        module = ""
        for each in names.split(" "):
            name = f"{module}{each}" if each[0] == "." else each.replace(":", "torch.")
            module = name.rpartition(".")[0]
            yield name, words


def _operation(section: str, name: str) -> Operation | None:
    text = table()[section].get(name)
    return None if text is None else _decode(text, name)


def _decode(text: str, name: str) -> Operation:
    """Read `result [key=value]... [syncs] trait... | keyword@position:wants result ...`."""
    base, *others = text.split(" | ")
    operation = _decode_one(base, Operation(short_name(name), "unknown"))
    return replace(operation, variants=tuple(_decode_variant(each, operation) for each in others))


def _decode_one(text: str, base: Operation) -> Operation:
    """The operation that the words describe; what they leave out of names and memory is as in `base`."""
    result, *words = text.split(" ")
    stated = dict(each.split("=", 1) for each in words if "=" in each)
    views = _decode_arguments(stated["views"]) if "views" in stated else base.views
    writes = _decode_arguments(stated["writes"]) if "writes" in stated else base.writes
    return Operation(
        name=base.name[:-1] if stated.get("is") == IN_PLACE else stated.get("is", base.name),
        result=result,
        dtype=stated.get("dtype", ""),
        syncs="syncs" in words,
        traits=_TRAITS.intersection(words) | (base.traits - CALL_TRAITS),
        dim=_decode_argument(stated["dim"]) if "dim" in stated else base.dim,
        views=views + tuple(each for each in writes if each.name == "out" and each not in views),
        may_return=_decode_arguments(stated["may"]) if "may" in stated else base.may_return,
        writes=writes,
    )


def _decode_variant(text: str, base: Operation) -> Variant:
    condition, _, operation = text.partition(" ")
    argument, _, wants = condition.partition(":")
    where = _decode_argument(argument)
    return Variant(where.name, where.position, wants, _decode_one(operation, base))


def _decode_arguments(text: str) -> tuple[Argument, ...]:
    return tuple(map(_decode_argument, text.split(",")))


def _decode_argument(text: str) -> Argument:
    """Read `name[@position][* | []][?when]`."""
    text, _, when = text.partition("?")
    name, _, position = text.rstrip("*[]").partition("@")
    spread = "rest" if text.endswith("*") else "items" if text.endswith("[]") else ""
    return Argument(name, int(position) if position else None, spread, _decode_argument(when) if when else None)


__all__ = [  # of others
    "FALSE",
    "NONE",
    "NUMBER",
    "OTHER",
    "TENSOR",
    "TRUE",
    "UNKNOWN",
    "Argument",
    "Operation",
    "Trait",
]
