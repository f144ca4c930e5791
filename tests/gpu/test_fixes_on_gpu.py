"""On a GPU, fixed programs compute what they did: the same bits, or the same but for rounding where a fix says so."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from perflint.engine.rule import Safety  # noqa: E402
from tests.gpu.measure import PROGRAMS, difference, equal, fix, load  # noqa: E402

TOLERANCES = {Safety.ROUNDING: 1e-4, Safety.PRECISION: 1e-2}  # of others than exact fixes


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_a_fixed_program_computes_the_same_on_the_gpu(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = load(path, text).run()
    result = fix(text, exact=isinstance(expected, str))  # the text of rounded numbers is another one
    assert result.applied
    if "lerp_" in result.text and "lerp_" not in text:  # which rounds otherwise: a deep network makes much of it
        torch.set_default_dtype(torch.float64)
        try:
            assert difference(load(path, text).run(), load(path, result.text).run()) < 1e-9
        finally:
            torch.set_default_dtype(torch.float32)
        return
    actual = load(path, result.text).run()
    if tolerance := max(TOLERANCES.get(each.fix.safety, 0.0) for each in result.applied):
        assert difference(expected, actual) < tolerance
    else:
        assert equal(expected, actual)
