"""Loops that end by a test give the same as graphs of several steps, also where those compute past the end."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perflint.engine.catalogue import rules_by_name
from perflint.engine.fix import fix_text
from tests.fixture_cases import default_options, load

torch = pytest.importorskip("torch")
from tests.rules.graph_chunks import in_chunks  # noqa: E402

RULE = rules_by_name()["decode-loop"]
FILES = [Path(__file__).with_name(f"graph_{name}.py") for name in ("writes", "results", "counts")]
NAMES = [
    (path, name)
    for path in FILES
    for name in re.findall(r"@torch.no_grad\(\)\n    def (\w+)", path.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[ModuleType, ModuleType]]:
    """Each file as it is, and as it is fixed."""
    folder = tmp_path_factory.mktemp("traps")
    pairs = {}
    for path in FILES:
        result = fix_text(path.read_text(encoding="utf-8"), [RULE], default_options(RULE), unsafe=True)
        fixed = folder / path.name
        fixed.write_text(result.text, encoding="utf-8")
        pairs[path] = load(path, f"{path.stem}_plain"), load(fixed, f"{path.stem}_fixed")
    return pairs


def seen(program: ModuleType, name: str) -> Iterator[Any]:
    """All that a caller sees of some calls: results as they are at the end, its tensors, the model, the dice."""
    torch.manual_seed(3)
    model = program.Decoder()
    model.head.bias.data[program.END] += 0.1
    calls = [(torch.randint(5, (3,)), torch.randn(3, 8), steps) for steps in (7, 7, 1, 2, 20, 0)]
    results = [result_of(getattr(model, name), given) for given in calls]
    yield from (results, calls, model.state_dict(), model.cache, getattr(program, "SHARED", 0), torch.rand(1))


def result_of(method: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What a call gives; -1 if it fails for want of a step."""
    try:
        return method(*given)
    except (RuntimeError, ValueError, UnboundLocalError) as error:
        assert given[2] == 0, error
        return -1


@pytest.mark.parametrize("chunks", [False, True], ids=["eager", "in_chunks"])
@pytest.mark.parametrize(("path", "name"), NAMES, ids=[name for _, name in NAMES])
def test_callers_see_the_same(
    programs: dict[Path, tuple[ModuleType, ModuleType]],
    path: Path,
    name: str,
    chunks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, fixed = programs[path]
    if chunks:
        monkeypatch.setattr(fixed, "graphed_loop", in_chunks)
    expected, found = list(seen(plain, name)), list(seen(fixed, name))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_some_of_them_are_captured_all_the_same(programs: dict[Path, tuple[ModuleType, ModuleType]]) -> None:
    methods = [getattr(programs[path][1].Decoder, name) for path, name in NAMES]
    assert sum("graphed_loop" in inspect.getsource(method) for method in methods) >= 8
