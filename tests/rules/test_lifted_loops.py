"""Time loops that are computed at once give what they gave step by step: outputs, losses and every gradient."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from perflint.analysis.program import Program
from perflint.engine.rule import Fix
from perflint.transforms.operations import expression, plus, statement
from perflint.transforms.rewrite import Blocked
from perflint.transforms.vectorize import indexing, results, rewrite, values
from perflint.transforms.vectorize.rewrite import vectorized_or_unswitched
from tests.fixture_cases import cases, load
from tests.rules.lift_layouts import LAYOUTS
from tests.rules.lift_operations import OPERATIONS
from tests.rules.lift_programs import Choose, program
from tests.rules.lift_states import RESULTS, STATES

torch = pytest.importorskip("torch")
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def generated(choose: Choose) -> str:
    return program(choose, [*OPERATIONS, *LAYOUTS, *STATES], RESULTS)


@st.composite
def programs(draw: st.DrawFn) -> str:
    return generated(lambda options: draw(st.sampled_from(options)))


def at_once(text: str) -> str:
    """The program with all of its loops over time lifted that can be."""
    while (fix := _first_fix(text)) is not None:
        for edit in sorted(fix.edits, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _first_fix(text: str) -> Fix | None:
    tree = Program(text)
    loops: list[ast.For | ast.While] = [*tree.of_type(ast.For), *tree.of_type(ast.While)]
    return next((fix for loop in loops if (fix := _fix(tree, loop)) is not None), None)


def _fix(tree: Program, loop: ast.For | ast.While) -> Fix | None:
    try:
        return vectorized_or_unswitched(tree, loop)
    except Blocked:
        return None


def outcome(text: str) -> list[Any]:
    """What the program computes in double precision."""
    namespace: dict[str, Any] = {}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exec(compile(text, "program", "exec"), namespace)
        results: list[Any] = namespace["run"]()
    finally:
        torch.set_default_dtype(before)
    return results


def flat(results: Any) -> list[Any]:
    """The results without the lists and tuples that they are in."""
    return [part for each in results for part in flat(each)] if isinstance(results, list | tuple) else [results]


def assert_same(text: str, after: str) -> None:
    torch.testing.assert_close(outcome(after), outcome(text), equal_nan=True, **CLOSE)


@given(programs())
def test_a_generated_loop_computes_the_same_at_once_or_is_refused(text: str) -> None:
    after = at_once(text)
    if after != text:
        assert_same(text, after)


UNDER_AUTOCAST = """
import torch

def scored(places: torch.Tensor):
    seq_len, width = places.shape
    state = places[0]
    scores = torch.zeros(seq_len, dtype=torch.float32)
    for t in range(seq_len):
        scores[t] = torch.dot(state, places[t])
    return scores

def run():
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        return [scored(torch.randn(7, 5, dtype=torch.float32))]
"""


def test_dots_stay_in_full_precision_under_autocast() -> None:
    after = at_once(UNDER_AUTOCAST)
    assert after != UNDER_AUTOCAST
    torch.testing.assert_close(outcome(after), outcome(UNDER_AUTOCAST))


def test_what_chooses_how_to_score_is_not_mapped_under_autocast() -> None:
    scored = "score(state, places[t])"
    helper = "def score(x, y):\n    if KIND:\n        return x.dot(y)\n    else:\n        return x.dot(y * 2)\n"
    text = UNDER_AUTOCAST.replace("torch.dot(state, places[t])", scored)
    text = text.replace("import torch\n", f"import torch\n\nKIND = 1\n\n{helper}", 1)
    assert at_once(text) == text
    assert "torch.vmap(score" in at_once(text.replace('torch.autocast("cpu", torch.bfloat16)', "torch.no_grad()"))


def test_a_good_part_of_the_generated_loops_is_lifted() -> None:
    texts = [generated(random.Random(seed).choice) for seed in range(60)]
    assert sum(at_once(text) != text for text in texts) >= 12


def differs(seed: int) -> bool:
    """Whether the program of this seed is not the same any more, once it is lifted."""
    text = generated(random.Random(seed).choice)
    if (after := at_once(text)) == text:
        return False
    try:
        assert_same(text, after)
    except Exception:
        return True
    return False


def stay(code: ast.expr, source: int, target: int) -> ast.expr:
    return code


class OtherBranch(rewrite._Answered):
    def __init__(self, test: ast.expr, *, answer: bool) -> None:
        super().__init__(test, answer=not answer)


def now(code: ast.expr, offset: int) -> ast.expr:
    return SHIFTED(code, 0)


def backwards(scope: object) -> list[ast.stmt]:
    texts = [ast.unparse(ast.fix_missing_locations(each)) for each in LAST_VALUES(scope)]
    return [statement(text.replace("[:, -1]", "[:, 0]").replace("[-1]", "[0]")) for text in texts]


def other_way_round(scope: object, value: Any, axis: int, *, is_cat: bool) -> ast.expr | None:
    return JOINED(scope, value, 1 - axis if axis in (0, 1) and value.least else axis, is_cat=is_cat)


def shared(scope: object, value: Any) -> ast.expr:
    return expression("{x}.contiguous()", x=value.code)


SEEDS = range(280)  # for mutants that no program of the seed beside them tells any more
SHIFTED: Callable[..., ast.expr] = plus
LAST_VALUES: Callable[..., Any] = rewrite._last_values
JOINED: Callable[..., ast.expr | None] = results._joined
MUTANTS: dict[str, tuple[object, str, object, int]] = {  # with the seed of a program that tells it
    "the steps are left along the axis where they were": (values, "moved", stay, 30),
    "one branch of a test is taken for the other": (rewrite, "_Answered", OtherBranch, 3),
    "the step before is this step": (indexing, "plus", now, 30),
    "the first step is taken for the last": (rewrite, "_last_values", backwards, 23),
    "what is stacked stands along another axis": (results, "_joined", other_way_round, 23),
    "what is stacked shares its memory": (results, "_apart", shared, 23),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_generated_loops_tell_a_lifter_with_one_wrong_axis(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong, known = MUTANTS[mutant]
    monkeypatch.setattr(module, name, wrong)
    telling = next(seed for seed in (known, *SEEDS) if differs(seed))
    monkeypatch.undo()
    assert not differs(telling)


LIFTED = {
    case.path.stem: (case.path, after)
    for case in cases("before")
    if case.path.stem.startswith("lift_")
    for after in [next((each for each in (case.after(True), case.after(False)) if each.exists()), None)]
    if after is not None
}


def in_double_precision(path: Path) -> list[Any]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        found = torch.utils._pytree.tree_leaves(load(path, path.stem).run())
    finally:
        torch.set_default_dtype(torch.float32)
    return [each for each in found if isinstance(each, torch.Tensor) and each.dtype == torch.float64]


@pytest.mark.parametrize("name", LIFTED)
def test_lifted_fixtures_agree_in_double_precision(name: str) -> None:
    expected, actual = map(in_double_precision, LIFTED[name])
    assert expected
    torch.testing.assert_close(actual, expected, equal_nan=True, **CLOSE)
