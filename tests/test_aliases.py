"""No fix that is called exact or rounding changes what a program gives, whatever else its tensors are called."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from perflint.analysis.program import Program
from perflint.engine.rule import Edit, Finding, Fix, Options, Rule, Safety

torch = pytest.importorskip("torch")
from tests.aliases import trial  # noqa: E402
from tests.aliases.part import Kind, Part, catalogue  # noqa: E402
from tests.aliases.programs import HERE, Case, covering, empty, rendered, templates  # noqa: E402
from tests.aliases.trial import Verdict, tried  # noqa: E402

TEMPLATES = {template.name: template for template in templates()}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: threads cost more than they give."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_template() -> dict[str, list[Case]]:
    """The programs in which each part is, by their templates."""
    cases = defaultdict(list)
    for case in covering():
        cases[case.template.name].append(case)
    return cases


CASES = by_template()


@pytest.mark.parametrize("name", CASES)
def test_a_fix_does_no_harm_to_programs_with_aliases(name: str) -> None:
    outcomes = {str(case): tried(rendered(case)) for case in CASES[name]}
    wrong = {case: outcome.detail for case, outcome in outcomes.items() if outcome.verdict is Verdict.WRONG}
    assert wrong == {}


@pytest.mark.parametrize("name", TEMPLATES)
def test_without_aliases_each_template_is_fixed(name: str) -> None:
    outcome = tried(empty(TEMPLATES[name].text))
    assert outcome.verdict is Verdict.SAME, outcome


class Unaware(Rule):
    """Expands whatever is repeated, and knows no aliases."""

    group = "memory"

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        """Yield a finding for each repeating."""
        for match in re.finditer(r"repeat\(b, 1\)", program.text):
            fix = Fix("expand it", Safety.EXACT, (Edit(*match.span(), "expand(b, -1)"),))
            yield self.finding(match.span(), "it is repeated", kind="repeat", fixes=(fix,))


Unaware.name = "unaware"


ELEMENTS = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        batch, steps, width = x.shape
        outputs = []
        for t in range(steps):
            outputs.append(x[:, t] * 2)
        first = outputs[0].expand(2, 4)
        list(map(lambda each: each.zero_(), [first]))
        return torch.stack(outputs, dim=1), sum(outputs[1:])


@torch.no_grad()
def run():
    return Model()(torch.ones(2, 3, 4))
"""


def test_a_graph_gives_no_element_of_a_list_that_it_also_gives_where_one_may_be_written_to() -> None:
    assert tried(ELEMENTS).verdict is Verdict.SAME
    assert "return outputs, first" not in trial.fixed_text(ELEMENTS)


def test_a_wrong_patch_is_noticed_and_brought_down_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {part.name: part for part in (*catalogue("bindings"), *catalogue("places"))}
    aliases, place = (parts["deque"], parts["walrus"]), parts["closure called later"]
    effect = Part("DST.add_(1)", "DST.add_(1)")
    case = Case(TEMPLATES["repeat_row"], "s", Kind.TENSOR, aliases, effect, place, "before", "between")
    monkeypatch.setattr(trial, "RULES", (Unaware(),))
    outcome = tried(rendered(case))
    assert (outcome.verdict, outcome.applied) == (Verdict.WRONG, (("unaware", "exact"),))
    least = trial.minimised(case, outcome)
    assert (least.aliases, least.place, least.alias_at, least.effect_at) == ((), HERE, "between", "between")


def test_a_program_that_fails_as_it_is_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "RULES", (Unaware(),))
    assert tried(BASE.replace("y * r", "y @ r")).verdict is Verdict.RAISES
    assert tried(BASE).verdict is Verdict.SAME


BASE = empty(TEMPLATES["repeat_row"].text)
