"""What a check does with verdicts that it can't read."""

from __future__ import annotations

import pytest

from tests.call_rules import Project, project

__all__ = ["project"]


@pytest.mark.parametrize("content", ["{", '{"version": 2}', None], ids=["damaged", "of another version", "a folder"])
def test_verdicts_that_can_not_be_read_cost_a_line_and_the_gains_alone(project: Project, content: str | None) -> None:
    project.program("a.py", "slow()")
    usual = project.run("check", "--output-format", "concise")
    project.write(".perflint/verdicts.json" if content else ".perflint/verdicts.json/inside", content or "")
    result = project.run("check", "--output-format", "concise")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, len(usual.stdout.splitlines()))
    (line,) = result.stderr.splitlines()
    assert line.startswith("perflint: no gains are shown: ")
    assert line.endswith(": delete it or verify again")
