"""Rules see perflint through its API alone, and the API explains itself."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from perflint import api

ROOT = Path(__file__).parent.parent
RULES = sorted((ROOT / "rules").rglob("*.py"))
PUBLIC = [name for name in api.__all__ if callable(getattr(api, name)) and not name.isupper()]


@pytest.mark.parametrize("path", RULES, ids=lambda path: str(path.relative_to(ROOT / "rules")))
def test_rules_stay_in_their_own_package(path: Path) -> None:
    depth = len(path.relative_to(ROOT / "rules").parts) - 1
    nodes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom))
    assert all(node.level <= depth for node in nodes)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name: str) -> None:
    thing = getattr(api, name)
    own = inspect.isclass(thing) or inspect.isfunction(thing)
    assert not own or (thing.__doc__ or "").strip()


@pytest.mark.parametrize("name", [name for name in api.__all__ if not name.startswith("_")])
def test_the_overview_or_the_guide_names_every_public_name(name: str) -> None:
    guide = (ROOT / "perflint" / "api.md").read_text(encoding="utf-8")
    assert f"`{name}`" in (api.__doc__ or "") + guide or f"api.{name}" in guide


def test_the_api_imports_no_libcst_before_somebody_asks_for_matchers() -> None:
    seen = "print('libcst' in sys.modules)"
    code = f"import sys, perflint.api as api; {seen}; api.matchers(); {seen}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_new_rules_stay_short() -> None:
    longer = {"dataloader_defaults.py"}  # written before there was an API
    lines = {each.name: len(each.read_text(encoding="utf-8").splitlines()) for each in (ROOT / "rules").glob("*.py")}
    assert {name for name, count in lines.items() if count > 150} <= longer
