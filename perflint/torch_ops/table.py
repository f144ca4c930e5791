"""What torch's functions, methods and classes give back, loaded from a generated table.

`python -m perflint.torch_ops.generate` writes the table, torch_table.json, out of an installed torch; see there
for where each fact comes from and what is known to be missing. A name that is not in the table is unknown.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("torch_table.json")

UNKNOWN = "unknown"
RESULTS = (  # of an Entry, besides UNKNOWN; tuple and tensors are a tuple and a list of tensors, list is Python data
    *("tensor", "tuple", "tensors", "list", "number", "bool", "size"),
    *("str", "device", "dtype", "none", "numpy", "other"),
)
TRAITS = frozenset(["pointwise", "reduction", "view", "random", "factory", "like", "inplace"])

NUMBER, TENSOR, TRUE, FALSE, NONE, OTHER = "number", "tensor", "true", "false", "none", "other"  # kinds of arguments


@dataclass(frozen=True, slots=True)
class Entry:
    """What one call gives, as far as its name alone tells; `select` adds what its arguments tell.

    Attributes:
        result: one of RESULTS, or UNKNOWN.
        dtype: "bool" or "int" (int64) where every result is that unless a `dtype` argument says otherwise, else "".
        syncs: whether the host waits for the device because the result depends on values there.
        traits: pointwise (elementwise, its tensors broadcast), reduction, view (shares or may share its input's
            memory), random (draws from a generator), factory (makes a tensor out of none), like (makes a tensor
            where its input lies: zeros_like, new_zeros), inplace (changes its first tensor and returns it).
        variants: calls which give something else, the first that fits holds.
    """

    result: str
    dtype: str = ""
    syncs: bool = False
    traits: frozenset[str] = frozenset()
    variants: tuple[Variant, ...] = ()

    def select(self, positional: Sequence[str], keywords: Mapping[str, str]) -> Entry:
        """The entry of a call with arguments of these kinds: NUMBER, TENSOR, TRUE, FALSE, NONE, OTHER or UNKNOWN.

        A method's positional arguments don't count the tensor itself. Where the kinds can't tell which variant the
        call is, the result is UNKNOWN unless all agree, and `syncs` only if all do.
        """
        candidates = []
        for variant in self.variants:
            fits = variant.fits(positional, keywords)
            if fits is not False:
                candidates.append(variant.entry)
            if fits:
                break
        else:
            candidates.append(replace(self, variants=()))
        return functools.reduce(_either, candidates)


@dataclass(frozen=True, slots=True)
class Variant:
    """What a call gives when one argument, at `position` or named `keyword`, is of a kind.

    `wants` is NUMBER, TENSOR, TRUE, or "given" for any but a literal None or False.
    """

    keyword: str
    position: int | None
    wants: str
    entry: Entry

    def fits(self, positional: Sequence[str], keywords: Mapping[str, str]) -> bool | None:
        """Whether a call with arguments of these kinds is this variant; None if that can't be told."""
        if self.keyword in keywords:
            kind = keywords[self.keyword]
        elif self.position is not None and self.position < len(positional):
            kind = positional[self.position]
        else:
            return False
        if self.wants == "given":
            return kind not in (NONE, FALSE)
        return None if kind == UNKNOWN else kind == self.wants


def function(qualified: str) -> Entry | None:
    """The entry of a function by its public name, as "torch.cat" or "torch.nn.functional.relu"."""
    return _entry("functions", qualified)


def method(name: str) -> Entry | None:
    """The entry of a method of torch.Tensor."""
    return _entry("methods", name)


def attribute(name: str) -> Entry | None:
    """The entry of a property of torch.Tensor, as "shape" or "T"."""
    return _entry("attributes", name)


def distribution_method(name: str) -> Entry | None:
    """The entry of a method or property which the classes in torch.distributions share."""
    return _entry("distribution", name)


def class_kind(qualified: str) -> str | None:
    """What kind of class a public name is; None if it is not a class of torch that the table knows.

    One of module, rnn, rnn-cell, loss, container, dropout, optimizer, scheduler, dataset, iterable-dataset, loader,
    sampler, distribution, parameter, tensor-type (torch.FloatTensor).
    """
    text: str | None = _table()["classes"].get(qualified)
    return None if text is None else text.partition(" ")[0]


def forward(qualified: str) -> Entry | None:
    """What calling an instance of a module's class gives; None if its name is not known."""
    text: str | None = _table()["classes"].get(qualified)
    if text is None or " " not in text:
        return None
    return _decode(text.partition(" ")[2])


def exports(module: str) -> tuple[str, ...]:
    """The names which `from module import *` binds, of the modules that are usually imported so."""
    return tuple(_table()["exports"].get(module, ()))


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(PATH.read_bytes())
    return table


def _entry(section: str, name: str) -> Entry | None:
    text = _table()[section].get(name)
    return None if text is None else _decode(text)


@functools.cache
def _decode(text: str) -> Entry:
    """Read `result [=dtype] [syncs] trait... | keyword@position:wants result ...`."""
    base, *others = text.split(" | ")
    return replace(_decode_one(base), variants=tuple(map(_decode_variant, others))) if others else _decode_one(base)


def _decode_one(text: str) -> Entry:
    result, *words = text.split(" ")
    dtype = next((word[1:] for word in words if word.startswith("=")), "")
    return Entry(result, dtype, "syncs" in words, TRAITS.intersection(words))


def _decode_variant(text: str) -> Variant:
    condition, _, entry = text.partition(" ")
    where, _, wants = condition.partition(":")
    keyword, _, position = where.partition("@")
    return Variant(keyword, int(position) if position else None, wants, _decode_one(entry))


def _either(one: Entry, other: Entry) -> Entry:
    """What is known of a call that is one or the other."""
    return Entry(
        one.result if one.result == other.result else UNKNOWN,
        one.dtype if one.dtype == other.dtype else "",
        one.syncs and other.syncs,
        one.traits & other.traits,
    )
