"""What one operation of torch does, and to which of a call's arguments."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from perflint.syntax.walk import is_false

UNKNOWN = "unknown"
RESULTS = (  # besides UNKNOWN; tuple and tensors are a tuple and a list of tensors, list is Python data
    *("tensor", "tuple", "tensors", "list", "number", "bool", "size"),
    *("str", "device", "dtype", "none", "numpy", "other"),
)
Trait = Literal[
    "pointwise",  # elementwise, its tensors broadcast
    "reduction",
    "view",  # computes nothing: the same numbers in memory that it shares where their layout allows it
    "random",  # draws from a generator
    "factory",  # makes a tensor out of none
    "like",  # makes a tensor where its input lies
    "loss",  # of a batch, with an argument `reduction`
    "cast",  # the same numbers in another type
    "move",  # in another place
    "to_device",  # may take the tensor to the device
    "adopting",  # makes its tensor another name for the memory of what it is given
    "differentiating",  # changes gradients: of its arguments, or of all that its tensor was computed from
    "linear",  # autograd keeps none of its tensors for their gradients
    "applying",  # calls a function that it is given
    "copying",  # gives its tensor's numbers, or a constant: bitwise the same on every device
    "to_host",  # copies to the host, or reads there
    "counting",  # waits for the device since the values decide how many, or whether
    "keeping",  # computes nothing: the same numbers in another layout, type or place
    "measuring",  # tells of the tensor what neither its values nor its layout decide
    "strided",  # tells of the layout in memory, or fails where that doesn't fit
    "any_strides",  # its result's axes may lie in any order in memory, whatever its tensor's
    "in_order",  # its result's axes lie in order in memory, whatever its tensor's
    "layout_blind",  # gives the same for a tensor of any layout, and its result shows none of that
    "restriding",  # a view whatever the layout
    "permuting",  # a view with the axes in another order
    "parting",  # several views, of parts
    "joining",  # one tensor of several
    "matmul",
    "indexing",  # reads or writes at indices, or where a mask is set
    "repeating",  # the same numbers several times
    "vmapped",  # a loss of an output and a target of which torch.vmap makes one for each item of a batch
    "distance",  # compares two tensors, which broadcast
    "choosing",  # by the greatest, or by chance
    "pairing",  # gives values and indices, at least with a `dim`
    "same_shape",  # as its tensor
    "sized",  # makes a tensor of a given size, or of another's, without looking at numbers
    "filling",  # with one number
    "of_data",  # makes a tensor of Python data
    "line",  # makes one axis of numbers
    "updating",  # in place, it changes some elements, or adds to them
    "replacing",  # in place, it changes all of them
    "taking_sizes",  # its arguments are sizes, counts, bounds or shifts
    "making_floats",  # whatever it is given
    "making_reals",  # even of complex numbers, or fails
    "making_longs",  # of integers and bools, however narrow they are
    "combining",  # two tensors to one of their kind
    "tracking",  # as a module, it writes statistics of its inputs to its own buffers
    "same_kind",  # floats of floats, integers of integers
    "unmistakable",  # no other type has a method of that name
]
TRAITS: tuple[Trait, ...] = get_args(Trait)
CALL_TRAITS = frozenset(["pointwise", "reduction", "view", "random", "factory", "like"])  # arguments may decide them
_METADATA = frozenset(["number", "bool", "size", "device", "dtype", "str"])

NUMBER, TENSOR, TRUE, FALSE, NONE, OTHER = "number", "tensor", "true", "false", "none", "other"  # kinds of arguments
RECEIVER = "self"  # the name of the argument that a method is called on


@dataclass(frozen=True, slots=True)
class Argument:
    """Where a call holds what an operation views, returns or writes.

    Attributes:
        name: of the parameter; RECEIVER is the tensor that a method is called on.
        position: among the positional arguments, a method's not counting the receiver; None if it has none.
        spread: "items" for the tensors in a sequence, or itself if it is none, "rest" for this and all later positional
            arguments, else "".
        when: an argument that has to be given, and not False, for it to happen, as `inplace`; a module's is an
            argument of its constructor.
    """

    name: str
    position: int | None = None
    spread: str = ""
    when: Argument | None = None

    def of(self, call: ast.Call) -> tuple[ast.expr, ...]:
        """The expressions of a call that may hold it, none if it is not given.

        With `*args` or `**kwargs` in the call, these are returned where the argument may be in them.
        """
        if not self.happens(call):
            return ()
        if self.name == RECEIVER and self.position is None:
            return (call.func.value,) if isinstance(call.func, ast.Attribute) else ()
        return (*self._among_positional(call.args), *self._among_keywords(call.keywords))

    def happens(self, call: ast.Call) -> bool:
        """Whether `call`, of a module's constructor for what is asked for there, may ask for it."""
        return self.when is None or not all(is_false(each) for each in self.when.of(call))

    def _among_positional(self, values: Sequence[ast.expr]) -> Iterator[ast.expr]:
        if self.position is None:
            return
        before = values[: self.position + 1]
        starred = next((index for index, each in enumerate(before) if isinstance(each, ast.Starred)), None)
        if starred is not None:
            yield from values[starred:]
        elif self.spread == "rest":
            yield from values[self.position :]
        else:
            yield from values[self.position : self.position + 1]

    def _among_keywords(self, keywords: Sequence[ast.keyword]) -> Iterator[ast.expr]:
        named = [each.value for each in keywords if each.arg == self.name]
        yield from named or (each.value for each in keywords if each.arg is None)


@dataclass(frozen=True, slots=True)
class Operation:
    """What one call does, as far as its name alone tells; `select` adds what its arguments tell.

    Functions, methods and operators that do the same, their aliases and in-place forms have one `name`.

    Attributes:
        name: the canonical name, without `torch.`: "cat" for torch.concat, "add" for Tensor.__iadd__.
        result: one of RESULTS, or UNKNOWN.
        dtype: "bool" or "int" (int64) where every result is that unless a `dtype` argument says otherwise, else "".
        syncs: whether the host waits for the device because the result depends on values there.
        traits: those of TRAITS that hold, to be asked for by `does`.
        dim: where the number of an axis goes; None if nowhere.
        views: the arguments whose memory the result always shows; written `out` and `self` are among them.
        may_return: the arguments whose memory the result may show or that it may be, depending on their layout, type
            or place, as of `contiguous` and `to`.
        writes: the arguments whose values, or whose shape, the call changes.
        variants: calls which give something else, the first that fits holds.
    """

    name: str
    result: str
    dtype: str = ""
    syncs: bool = False
    traits: frozenset[str] = frozenset()
    dim: Argument | None = None
    views: tuple[Argument, ...] = ()
    may_return: tuple[Argument, ...] = ()
    writes: tuple[Argument, ...] = ()
    variants: tuple[Variant, ...] = ()

    def does(self, trait: Trait) -> bool:
        return trait in self.traits

    @property
    def is_metadata(self) -> bool:
        """Whether it tells something of the tensor that the host knows, as its sizes or its type."""
        return self.result in _METADATA and not self.syncs

    @property
    def shares(self) -> bool:
        """Whether the result may be, or show the memory of, one of the arguments without `out` or `inplace`."""
        return any(each.name != "out" and each.when is None for each in (*self.views, *self.may_return))

    @property
    def in_place(self) -> bool:
        """Whether the call changes one of its inputs, without `out` or `inplace`."""
        return any(each.name != "out" and each.when is None for each in self.writes)

    def select(self, positional: Sequence[str], keywords: Mapping[str, str]) -> Operation:
        """What a call does with arguments of these kinds: NUMBER, TENSOR, TRUE, FALSE, NONE, OTHER or UNKNOWN.

        A method's positional arguments don't count the tensor itself. Where the kinds can't tell which variant the
        call is, the result is UNKNOWN unless all agree, and `syncs` only if all do.
        """
        candidates = []
        for variant in self.variants:
            fits = variant.fits(positional, keywords)
            if fits is not False:
                candidates.append(variant.operation)
            if fits:
                break
        else:
            candidates.append(replace(self, variants=()))
        return functools.reduce(_either, candidates)

    def unbound(self) -> Operation:
        """The same method as a function, as torch.Tensor.add, whose first argument is the tensor."""
        views, may_return, writes = (tuple(map(_shifted, each)) for each in (self.views, self.may_return, self.writes))
        variants = tuple(
            replace(
                each,
                position=None if each.position is None else each.position + 1,
                operation=replace(each.operation, views=views, may_return=may_return, writes=writes),
            )
            for each in self.variants
        )
        dim = None if self.dim is None else _shifted(self.dim)
        return replace(self, dim=dim, views=views, may_return=may_return, writes=writes, variants=variants)


@dataclass(frozen=True, slots=True)
class Variant:
    """What a call does when one argument, at `position` or named `keyword`, is of a kind.

    `wants` is NUMBER, TENSOR, TRUE, or "given" for any but a literal None or False.
    """

    keyword: str
    position: int | None
    wants: str
    operation: Operation

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


def _shifted(argument: Argument) -> Argument:
    when = None if argument.when is None else _shifted(argument.when)
    if argument.name == RECEIVER:
        return replace(argument, position=0, when=when)
    return replace(argument, position=None if argument.position is None else argument.position + 1, when=when)


def _either(one: Operation, other: Operation) -> Operation:
    """What is known of a call that is one or the other."""
    return replace(
        one,
        result=one.result if one.result == other.result else UNKNOWN,
        dtype=one.dtype if one.dtype == other.dtype else "",
        syncs=one.syncs and other.syncs,
        traits=one.traits & other.traits,
    )
