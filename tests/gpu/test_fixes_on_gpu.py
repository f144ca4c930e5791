"""On a GPU, fixed programs compute what they did: the same bits, or the same but for rounding where a fix says so."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from tests.gpu.measure import PROGRAMS, difference, equal, fixed, load  # noqa: E402

ROUNDED = {"teacher_forcing", "cell_loop", "many_parameters"}


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_a_fixed_program_computes_the_same_on_the_gpu(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert fixed(text) != text
    expected, actual = load(path, text).run(), load(path, fixed(text)).run()
    if path.stem in ROUNDED:
        assert difference(expected, actual) < 1e-4
    else:
        assert equal(expected, actual)
