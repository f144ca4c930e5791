"""The loop that `graphed_loop` stands for, step by step, and the forms that its state and outputs take."""

from __future__ import annotations

import dis
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from perflint.runtime.refusal import CannotCapture
from perflint.runtime.tree import flatten, rebuild

Step = Callable[[int, Any], tuple[Any, Any]]
Until = Callable[[Any], Any]
Form = tuple[Hashable, ...]


@dataclass
class Course:
    """What an eager loop went through: the form of its state at first, and the generator's offsets between steps."""

    forms: list[Form] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def note(self, state: Any) -> None:
        """Note the state between two steps."""
        if len(self.forms) < 3:
            self.forms.append(form_of(state))
        self.offsets.append(torch.cuda.default_generators[torch.cuda.current_device()].get_offset())

    @property
    def draws(self) -> int:
        """By how much each step advances the generator; CannotCapture if it differs from step to step."""
        steps = {after - before for before, after in zip(self.offsets, self.offsets[1:], strict=False)}
        if len(steps) != 1:
            raise CannotCapture("its steps draw different numbers of random values")
        return steps.pop()

    @property
    def warm_up(self) -> int:
        """How many steps run before the state has its lasting form, 0 or 1; CannotCapture if it has none."""
        if len(self.forms) < 2 or self.forms[0] == self.forms[1]:
            return 0
        if len(self.forms) < 3 or self.forms[1] == self.forms[2]:
            return 1
        raise CannotCapture("its state changes shape, layout or values that are not on the device")


def run(
    step: Step, until: Until | None, state: Any, first: int, steps: int, course: Course | None = None
) -> tuple[Any, list[Any], bool]:
    """Run from step `first` to `steps` or until the test holds; return state, outputs, and whether it did."""
    outputs = []
    if course:
        course.note(state)
    for index in range(first, steps):
        state, output = unpack(step(index, state))
        outputs.append(output)
        if course:
            course.note(state)
        if until is not None and until(output):
            return state, outputs, True
    return state, outputs, False


def unpack(result: tuple[Any, Any]) -> tuple[Any, Any]:
    """State and output of a step."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("a step of graphed_loop must return (state, output)")
    return result


def collect(outputs: list[Any], dim: int) -> tuple[list[Tensor], Hashable]:
    """Stack the outputs of steps along a new dimension; return the tensors and the structure of one output."""
    structures, columns = zip(*map(flatten, outputs), strict=True)
    if len({*structures}) != 1 or not all(isinstance(leaf, Tensor) for leaves in columns for leaf in leaves):
        raise TypeError("a step's output must be tensors, in the same structure at every step")
    return [torch.stack(column, dim) for column in zip(*columns, strict=True)], structures[0]


def stack(outputs: list[Any], dim: int) -> Any:
    """Outputs of steps, stacked along a new dimension, in the structure of one of them."""
    tensors, structure = collect(outputs, dim)
    return rebuild(structure, iter(tensors))


def form_of(state: Any) -> Form:
    """What of a state must stay the same from step to step: all but the values of tensors on the device."""
    structure, leaves = flatten(state)
    return (structure, *[_form_of_leaf(leaf) for leaf in leaves])


def _form_of_leaf(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        if leaf.layout is not torch.strided:
            raise CannotCapture("its state holds a sparse tensor")
        if not leaf.is_cuda:
            return (leaf.shape, leaf.stride(), leaf.dtype, id(leaf))
        if not (leaf.is_floating_point() or leaf.is_complex()):
            # whole numbers are the same whichever kernel computes them: strides count where they lead somewhere
            strides = (stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True) if size > 1)
            return (leaf.shape, tuple(strides), leaf.dtype, leaf.device)
        return (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.data_ptr() % 16)
    return leaf if isinstance(leaf, Hashable) else id(leaf)


def uses_parameter(code: CodeType, number: int) -> bool:
    """Whether a function reads its parameter of that number."""
    if number >= code.co_argcount:
        return True
    name = code.co_varnames[number]
    for instruction in dis.get_instructions(code):
        value = instruction.argval
        if not instruction.opname.startswith("STORE") and (name == value or (type(value) is tuple and name in value)):
            return True
    return False
