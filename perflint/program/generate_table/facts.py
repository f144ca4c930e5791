"""What the schemas and tags of torch's operators say."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from perflint.program.generate_table.signatures import Overload, of_schema

_TRAIT_TAGS = {"pointwise": "pointwise", "reduction": "reduction", "nondeterministic_seeded": "random"}
_SYNC_TAGS = ("data_dependent_output", "dynamic_output_shape")


@dataclass(frozen=True)
class Operator:
    """One overload of an operator in torch.ops.aten."""

    packet: Any
    overload: Overload
    traits: frozenset[str]
    syncs: bool
    composite: bool


@functools.cache
def operators(torch: Any, name: str) -> tuple[Operator, ...]:
    """All overloads of aten's `name` but those that write into given tensors."""
    found = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if any(argument.is_out for argument in schema.arguments):
            continue
        try:
            packet = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
        except (AttributeError, RuntimeError):
            continue
        if torch._C._dispatch_has_kernel(packet.name()):  # the others are TorchScript's, for Python scalars
            found.append(_operator(torch, packet, schema))
    return tuple(found)


def tag_names(packet: Any) -> frozenset[str]:
    """The names of an operator's tags."""
    return frozenset(tag.name for tag in packet.tags)


def syncs(packet: Any) -> bool:
    """Whether the operator's tags say that its result's value or shape depends on values on the device."""
    return not tag_names(packet).isdisjoint(_SYNC_TAGS)


def _operator(torch: Any, packet: Any, schema: Any) -> Operator:
    tags = tag_names(packet)
    traits = {trait for tag, trait in _TRAIT_TAGS.items() if tag in tags}
    aliases = [each.alias_info for each in schema.returns if each.alias_info]
    if aliases and not any(alias.is_write for alias in aliases):
        traits.add("view")
    first = schema.arguments[0].alias_info if schema.arguments else None
    if first and first.is_write:
        traits.add("inplace")
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(packet.name(), "CompositeImplicitAutograd")
    return Operator(packet, of_schema(schema), frozenset(traits), syncs(packet), composite)
