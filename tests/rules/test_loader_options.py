"""What the options of the rule on loaders change."""

from __future__ import annotations

from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
from perflint.engine.rule import Severity
from tests.fixture_cases import FIXTURES, default_options

RULE = rules_by_name()["dataloader-defaults"]
DEFAULTS = default_options(RULE)[RULE.name]
FOLDER = FIXTURES / "dataloader_defaults"


def test_the_number_of_workers_is_the_users() -> None:
    text = (FOLDER / "tensors_before.py").read_text(encoding="utf-8")
    fixed = fix_text(text, [RULE], {RULE.name: {**DEFAULTS, "workers": 7, "advice": False}}).text
    assert fixed.count("num_workers=7") == 2  # not where the items lie in memory
    assert "num_workers=4" not in fixed


def test_a_choice_of_the_programs_user_is_advice_and_has_no_fix() -> None:
    text = (FOLDER / "choices_ok.py").read_text(encoding="utf-8")
    findings = check_text(text, [RULE], {RULE.name: {**DEFAULTS, "workers": 4, "advice": True}})
    assert [finding.kind for finding in findings] == ["num_workers,pin_memory", "num_workers"]
    assert all(finding.severity is Severity.ADVICE and finding.blocked for finding in findings)


def test_the_reason_against_workers_is_said_with_the_fix_of_the_rest() -> None:
    text = (FOLDER / "obstacles_before.py").read_text(encoding="utf-8")
    findings = check_text(text, [RULE], {RULE.name: {**DEFAULTS, "workers": 4, "advice": False}})
    said = [finding.message for finding in findings if finding.fixes and "num_workers" in finding.kind]
    assert len(said) == 5
    assert all("no workers are added: " in message for message in said)


def test_loaders_of_a_list_that_are_walked_together_are_not_promised_the_same_batches() -> None:
    plain = (FOLDER.parent / "run" / "loads.py").read_text(encoding="utf-8")
    together = plain.replace("zip(source, target)", "zip(*[source, target])")
    plain = plain.replace("zip(source, target)", "[]")
    assert "num_workers" in fix_text(plain, [RULE], default_options(RULE)).text
    assert "num_workers" not in fix_text(together, [RULE], default_options(RULE)).text
