"""A script that trains by what it imports leaves float32 as it is, unless what it imports names a number format."""

from __future__ import annotations

import pytest

from perflint.analysis.links import ALONE, Context
from perflint.engine.catalogue import all_rules
from perflint.engine.check import find
from perflint.project.ties import contexts_of

RULES = [rule for rule in all_rules() if rule.name == "precision-left"]
SCRIPT = """import torch
from agent import Agent

if __name__ == "__main__":
    agent = Agent(torch.device("cuda"))
    for batch in torch.randn(1000, 64, 8):
        agent.{method}(batch)
"""
AGENT = """import torch
{imported}

class Agent:
    def __init__(self, device):
        self.model = torch.nn.Linear(8, 8).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def train_on(self, batch):
        loss = self.model(batch.cuda()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def fit(self, loader):
        for epoch in range(3):
            self.run(loader)

    def run(self, loader):
        for batch in loader:
            self.train_on(batch)

    def score(self, batch):
        return self.model(batch.cuda())
"""
WHOLE = """import torch
from agent import Agent

def main():
    agent = Agent(torch.device("cuda"))
    agent.{method}(torch.utils.data.DataLoader(torch.randn(1000, 8), 64))

if __name__ == "__main__":
    main()
"""
SCALED = """import torch

scaler = torch.amp.GradScaler("cuda")
"""


def lines_of(script: str, others: dict[str, str]) -> list[int]:
    """The lines of a script, among others, on which the rule reports it."""
    files, known = {"script.py": script, **others}, dict[str, Context]()
    for _ in range(4):
        found = {path: find(text, RULES, {}, known.get(path, ALONE)) for path, text in files.items()}
        known = contexts_of({path: each.links for path, each in found.items()})
    return [1 + script.count("\n", 0, each.start) for each in found["script.py"].findings]


def test_a_script_is_reported_where_it_calls_what_another_file_trains_with() -> None:
    assert lines_of(SCRIPT.format(method="train_on"), {"agent.py": AGENT.format(imported="")}) == [7]


def test_a_script_is_reported_where_it_calls_what_trains_as_a_whole() -> None:
    assert lines_of(WHOLE.format(method="fit"), {"agent.py": AGENT.format(imported="")}) == [6]
    assert not lines_of(WHOLE.format(method="score"), {"agent.py": AGENT.format(imported="")})


def test_a_script_that_names_neither_torch_nor_a_device_is_reported_where_the_files_that_it_imports_do() -> None:
    script = SCRIPT.format(method="train_on").replace("import torch\n", "").replace("torch.device", "print")
    script = script.replace("torch.randn(1000, 64, 8)", "[dataloaders()]")
    assert lines_of(script, {"agent.py": AGENT.format(imported="")}) == [6]


@pytest.mark.parametrize(
    ("method", "imported", "scaling"),
    [
        ("score", "", ""),
        ("train_on", "torch.set_float32_matmul_precision('high')", ""),
        ("train_on", "import scaling", SCALED),
    ],
)
def test_a_script_that_trains_not_or_imports_what_names_a_format_is_left_alone(
    method: str, imported: str, scaling: str
) -> None:
    others = {"agent.py": AGENT.format(imported=imported), "scaling.py": scaling}
    assert not lines_of(SCRIPT.format(method=method), others)
