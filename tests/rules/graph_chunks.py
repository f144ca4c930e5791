"""What `graphed_loop` does on a device, without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

CHUNK = 4


def in_chunks(
    step: Callable[..., Any], state: Any, steps: int, *, until: Any = None, dim: int = 0, last_state: bool = True
) -> Any:
    """What graphed_loop does on a device: chunks of steps on memory of its own, and what is past the end is dropped."""
    if steps < 1:
        raise ValueError("no steps")
    outputs: list[Any] = []
    ended = False
    while len(outputs) < steps and not ended:
        state = copied(state)
        chunk, states, dice = [], [], []
        for index in range(len(outputs), min(steps, len(outputs) + CHUNK)):
            state, output = step(index, state)
            chunk.append(output)
            states.append(state)
            dice.append(torch.get_rng_state())
        tests = [bool(until(output)) for output in chunk]
        taken = tests.index(True) + 1 if True in tests else len(tests)
        state, ended = states[taken - 1], tests[taken - 1]
        torch.set_rng_state(dice[taken - 1])
        outputs += [copied(output) for output in chunk[:taken]]
    leaves = [pytree.tree_flatten(output) for output in outputs]
    stacked = [torch.stack(column, dim) for column in zip(*(found for found, _ in leaves), strict=True)]
    result = pytree.tree_unflatten(stacked, leaves[0][1])
    return (copied(state), result) if last_state else result


def copied(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, tree)
