"""The results of the loop analysis: kind of iteration, header, and data flow over time."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum

from perflint.analysis.loops.flow import LoopFlow

VECTORIZABLE, AUTOREGRESSIVE, MIXED, RECURRENCE = "vectorizable", "autoregressive", "mixed", "recurrence"


class LoopKind(Enum):
    """What one iteration of a loop is."""

    STEP = "step"  # of training or evaluation, on a batch of its own
    TIME = "time"  # of a sequence, or of generation
    OTHER = "other"  # an epoch, a rollout, a layer, a file, ...


@dataclass(frozen=True)
class Element:
    """A target of the loop that is one step of the sequence `base`: of a tensor, along `axis`, or of a list."""

    target: ast.expr
    base: str
    source: ast.expr
    is_tensor: bool
    axis: int | None = 0


@dataclass
class Header:
    """What the head of a loop tells.

    `indices` are its induction variables, `bounds` what they count from and to, by more than one if it `strides`.
    `members` are targets that are neither steps of a sequence nor numbers. `is_other`: it walks no time axis.
    """

    indices: set[str] = field(default_factory=set)
    elements: list[Element] = field(default_factory=list)
    members: list[ast.expr] = field(default_factory=list)
    bounds: list[ast.expr] = field(default_factory=list)
    strides: bool = False
    is_other: bool = False


@dataclass(frozen=True)
class TimeLoop:
    """What is known of a time loop: its kind, what in the data flow shows it, and that data flow."""

    kind: str
    because: str
    header: Header
    flow: LoopFlow
