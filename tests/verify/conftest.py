"""Programs that are verified are forks of a process that has imported torch."""

from collections.abc import Iterator

import pytest

from perflint.verify import running
from tests import forks


@pytest.fixture(scope="package", autouse=True)
def _forks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "subprocess", forks)
        yield
