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


def _operator(torch: Any, packet: Any, schema: Any) -> Operator:
    tags = probe.tag_names(packet)
    traits = {trait for tag, trait in _TRAIT_TAGS.items() if tag in tags}
    aliases = [each.alias_info for each in schema.returns if each.alias_info]
    if aliases and not any(alias.is_write for alias in aliases):
        traits.add("view")
    first = schema.arguments[0].alias_info if schema.arguments else None
    if first and first.is_write:
        traits.add("inplace")
    seen = probe.observe(torch, packet, probe.schema_parameters(schema))
    if seen:
        traits |= seen.traits
    waits = probe.tagged_as_waiting(packet) or (seen is not None and seen.syncs)
    return Operator(packet, of_schema(schema), frozenset(traits), waits, seen.dtype if seen else None)
