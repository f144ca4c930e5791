"""Tells how far code computes the same once gradients are switched off for it."""

from __future__ import annotations

import ast
import re

from perflint.analysis.program import Effect, Program
from perflint.syntax.edits import Safety

_ATTENTION = re.compile(r"MultiheadAttention|Transformer|\bvit_")


def safety_without_gradients(program: Program, place: ast.AST) -> Safety:
    """What running `place` below `torch.no_grad()` promises.

    A module that is not known may differentiate, which fails there. Transformers may take their fast path there, also
    those of other files, whose text is not at hand.
    """
    if program.effects(place, Effect.UNSEEN):
        return Safety.BEHAVIOUR
    may_be_fast = _ATTENTION.search(program.text) or program.effects(place, Effect.ELSEWHERE)
    return Safety.ROUNDING if may_be_fast else Safety.EXACT
