"""What analyses find, in their common terms: how often code runs, gradient modes, effects, and the ends of a graph."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum, IntEnum


class Heat(IntEnum):
    """How often a place in the program runs."""

    ONCE = 0  # once, or now and then
    STEP = 1  # every training or evaluation step
    TIME = 2  # every time step


class GradMode(Enum):
    """Whether operations are recorded for a backward pass; UNKNOWN where it depends on a value, or on the caller."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class Effect(Enum):
    """What running code does, by itself or in the functions and modules that it calls.

    TRAINS: runs a backward pass, steps an optimizer or sets gradients to zero. DIFFERENTIATES: trains, takes gradients
    or asks for some to be recorded. RUNS_MODULE: calls a module, other than a loss. RECORDS: does so where no known
    code switches gradients off. ELSEWHERE: runs a module of another file of the project. UNSEEN: runs a module, or in a
    module anything, of which the code is not known.
    """

    TRAINS = "trains"
    DIFFERENTIATES = "differentiates"
    RUNS_MODULE = "runs a module"
    RECORDS = "records"
    ELSEWHERE = "elsewhere"
    UNSEEN = "unseen"


class Fate(Enum):
    """What becomes of a graph."""

    DIFFERENTIATED = "differentiated"
    KEPT = "kept"  # in an attribute, a variable of another scope, or what a caller owns
    RETURNED = "returned"  # to callers that are not known, or in other files
    LOST = "lost"  # not analysed
    OBSERVED = "observed"  # shown as text, copied, or given to code that is not known, none of which needs it
    HOOKED = "hooked"  # by hooks that the file registers, and which may keep it
    ASKED = "asked"  # whether there is one decides what is computed


@dataclass(frozen=True)
class GraphUse:
    """The place where a graph is differentiated or noticed, or may live on for somebody else to do so."""

    node: ast.AST
    fate: Fate
