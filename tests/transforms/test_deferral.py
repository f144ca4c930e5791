"""Programs whose reports are deferred say what they did, also where a device takes its time."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perflint.runtime.reports import flush  # noqa: E402
from tests.fixture_cases import FIXTURES, load  # noqa: E402
from tests.runtime.test_reports import Device, device  # noqa: E402,F401


@pytest.mark.parametrize("name", ["ordered", "printed"])
def test_a_program_says_the_same_on_a_device(name: str, device: Device) -> None:  # noqa: F811
    folder = FIXTURES / "item_in_loop"
    said = {}
    for ending in ("before", "after_unsafe"):
        torch.manual_seed(0)
        said[ending] = load(folder / f"{name}_{ending}.py", f"{name}_{ending}").run()
        flush()
    assert bytes(said["before"]).decode() == bytes(said["after_unsafe"]).decode()
    assert len(device.events) > 1
