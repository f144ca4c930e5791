"""On a GPU, programs with outlined steps and loops compute what they did, by graphs that are captured."""

from __future__ import annotations

import gc
import warnings
from types import CodeType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from perflint.runtime import step as steps  # noqa: E402
from perflint.runtime.step_replay import StepReplay  # noqa: E402
from tests.fixture_cases import FIXTURES, load  # noqa: E402

STEMS = [
    ("launch_bound_step/steps", 15),
    ("launch_bound_step/reported", 3),
    ("launch_bound_step/settings", 6),
    ("launch_bound_step/carried", 14),
    ("launch_bound_step/distributions", 1),
    ("launch_bound_step/acting", 4),
    ("launch_bound_step/collected", 4),
    ("launch_bound_step/partial", 11),
    ("launch_bound_step/kept", 1),
    ("launch_bound_step/output", 1),
    ("decode_loop/graph_outlined", 4),
]


@pytest.mark.parametrize(("stem", "count"), STEMS)
def test_what_is_outlined_computes_what_it_did_and_is_captured(
    stem: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = set[CodeType]()  # as it happens: a graph goes when the model that it trains does

    class Counted(StepReplay):
        def __init__(self, call: Any, *rest: Any) -> None:
            super().__init__(call, *rest)
            captured.add(call.function.__code__)

    monkeypatch.setattr(steps, "StepReplay", Counted)
    torch.manual_seed(0)
    expected = load(FIXTURES / f"{stem}_before.py", "before").run()
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = load(FIXTURES / f"{stem}_after_unsafe.py", "after").run()
    known = [each.records for each in steps._known.values()]
    try:
        assert not any(each.refused for each in known), [str(each.message) for each in told]
        assert len(captured) == count
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)  # Adam steps in its capturable form
    finally:
        gc.collect()
