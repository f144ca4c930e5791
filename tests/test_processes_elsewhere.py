"""A script that starts processes through code of another file needs a main guard."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.project.files import discover
from perflint.project.run import check_files
from perflint.project.settings import Settings

AGENT = """
import multiprocessing

import torch


class Agent:
    def __init__(self, policy, threads):
        self.policy, self.threads = policy, threads

    def collect(self):
        workers = [multiprocessing.Process(target=print) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        return torch.zeros(4)

    def describe(self):
        return str(self.policy)
"""

LOADERS = """
from torch.utils.data import DataLoader


class Batches(DataLoader):
    def __init__(self, dataset, workers=8):
        super().__init__(dataset, batch_size=32, num_workers=workers, pin_memory=True)


class Samples(DataLoader):
    def __init__(self, dataset, workers):
        super().__init__(dataset, batch_size=1, num_workers=workers, pin_memory=True)


def batches(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)


def walk(dataset, workers=8):
    yield from DataLoader(dataset, num_workers=workers)
"""

SCRIPT = """
import torch
from {module} import {name}

data = torch.arange(8)


def main():
    {statement}


{call}
"""


def findings(root: Path) -> list[tuple[str, int, str]]:
    settings = Settings(root=root, cache=False, jobs=1, select=("missing-main-guard",))
    result = check_files(discover([root], settings), settings)
    return [(Path(file.path).name, each.start.line, each.kind) for file in result.files for each in file.diagnostics]


def write(root: Path, module: str, name: str, statement: str, call: str = "main()") -> None:
    (root / "agent.py").write_text(AGENT)
    (root / "loaders.py").write_text(LOADERS)
    (root / "train.py").write_text(SCRIPT.format(module=module, name=name, statement=statement, call=call))


@pytest.mark.parametrize(
    ("module", "name", "statement", "kind"),
    [
        ("agent", "Agent", "agent = Agent(data, 4); agent.collect()", "certain"),
        ("loaders", "Batches", "print([x for x in Batches(data)])", "possible"),
        ("loaders", "batches", "print([x for x in batches(data)])", "certain"),
        ("loaders", "*", "print([x for x in Batches(data)])", "possible"),
        ("loaders", "walk", "print([x for x in walk(data)])", "possible"),
    ],
)
def test_a_script_that_starts_processes_through_another_file_is_reported(
    tmp_path: Path, module: str, name: str, statement: str, kind: str
) -> None:
    write(tmp_path, module, name, statement)
    assert findings(tmp_path) == [("train.py", 12, kind)]


@pytest.mark.parametrize(
    ("module", "name", "statement", "call"),
    [
        ("agent", "Agent", "agent = Agent(data, 4); agent.describe()", "main()"),
        ("loaders", "Samples", "print([x for x in Samples(data, 0)])", "main()"),
        ("loaders", "Batches", "return Batches(data)", "main()"),
        ("loaders", "walk", "print([x for x in walk(data, workers=0)])", "main()"),
        ("loaders", "walk", "from functools import partial; print(list(partial(walk, workers=0)(data)))", "main()"),
        ("loaders", "Batches", "print([x for x in Batches(data)])", 'if __name__ == "__main__":\n    main()'),
    ],
)
def test_a_script_that_starts_none_is_left_alone(
    tmp_path: Path, module: str, name: str, statement: str, call: str
) -> None:
    write(tmp_path, module, name, statement, call)
    assert findings(tmp_path) == []
