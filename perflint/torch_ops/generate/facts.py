"""What the schemas and tags of torch's operators say."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from perflint.torch_ops.generate import probe
from perflint.torch_ops.generate.signatures import Overload, of_schema

_TRAIT_TAGS = {"pointwise": "pointwise", "reduction": "reduction", "nondeterministic_seeded": "random"}


@dataclass(frozen=True)
class Operator:
    """One overload of an operator in torch.ops.aten."""

    packet: Any
    overload: Overload
    traits: frozenset[str]
    syncs: bool
    dtype: str | None  # None if no call told


@functools.cache
def schemas(torch: Any, name: str) -> tuple[Any, ...]:
    """The schemas of all overloads of aten's `name`."""
    return tuple(
        schema
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if torch._C._dispatch_has_kernel(".".join(filter(None, (schema.name, schema.overload_name))))
    )  # the others are TorchScript's, for Python scalars


@functools.cache
def operators(torch: Any, name: str) -> tuple[Operator, ...]:
    """All overloads of aten's `name` but those that write into given tensors."""
    return tuple(
        _operator(torch, packet_of(torch, schema), schema)
        for schema in schemas(torch, name)
        if not any(argument.is_out for argument in schema.arguments)
    )


def packet_of(torch: Any, schema: Any) -> Any:
    """The overload of an operator that a schema describes, to be called."""
    return getattr(getattr(torch.ops.aten, schema.name.removeprefix("aten::")), schema.overload_name or "default")


def _operator(torch: Any, packet: Any, schema: Any) -> Operator:
    tags = probe.tag_names(packet)
    traits = {trait for tag, trait in _TRAIT_TAGS.items() if tag in tags}
    aliases = [each.alias_info for each in schema.returns if each.alias_info]
    if aliases and not any(alias.is_write for alias in aliases):
        traits.add("view")
    seen = probe.observe(torch, packet, probe.schema_parameters(schema))
    if seen:
        traits |= seen.traits
    waits = probe.tagged_as_waiting(packet) or (seen is not None and seen.syncs)
    return Operator(packet, of_schema(schema), frozenset(traits), waits, seen.dtype if seen else None)
