"""Files that make up a program: whether it ever leaves the host is known in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.analysis.links import Context, Links, Says
from perflint.engine.results import Diagnostic
from perflint.engine.rule import Options
from perflint.project.files import discover
from perflint.project.programs import on_host
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.project.ties import contexts_of

MODEL = """\
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return self.layer(x)

    def training_step(self, x):
        loss = self(x).mean()
        print(loss.item())
        return loss
"""

LEARNING = """\
def learn(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        loss = model.training_step(x)
        loss.backward()
        optimizer.step()
"""

SCRIPT = """\
import torch
from learning import learn
from model import Model
from torch.utils.data import DataLoader


def main():
    model = Model(){move}
    learn(model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(range(8), batch_size=2))


if __name__ == "__main__":
    main()
"""

DECODER = """\
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)
        self.out = nn.Linear(8, 8)

    @torch.no_grad()
    def forward(self, x, h, c, steps: int):
        outs = []
        for _ in range(steps):
            h, c = self.cell(x, (h, c))
            x = self.out(h)
            outs.append(x)
        return torch.stack(outs)
"""

CALLING = "def decoded(decoder: Decoder, x, h, c):\n    return decoder(x, h, c, 8)\n"

OPTIMIZER = """\
import torch


class Scaled(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                norm = p.grad.norm()
                if norm > 1:
                    p.grad.div_(norm)
                p.data.sub_(p.grad)


if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    optimizer = Scaled(model.parameters(), {})
    for _ in range(3):
        loss = model(torch.randn(8, 2)).sum()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


OPTIONS: dict[str, Options] = {"dataloader-defaults": {"workers": 4, "measured": "", "advice": False}}


def diagnostics(root: Path, *rules: str, **texts: str) -> tuple[Diagnostic, ...]:
    for name, text in texts.items():
        (root / f"{name}.py").write_text(text)
    settings = Settings(root=root, cache=False, jobs=1, select=rules, rules=OPTIONS)
    return tuple(check_files(discover([root], settings), settings).diagnostics)


def found(root: Path, **texts: str) -> list[tuple[str, str]]:
    told = diagnostics(root, "sync", "dataloader-defaults", **texts)
    return [(Path(each.path).stem, each.rule) for each in told]


def test_no_file_of_a_program_that_never_speaks_of_a_device_leaves_the_host(tmp_path: Path) -> None:
    assert found(tmp_path, model=MODEL, learning=LEARNING, script=SCRIPT.format(move="")) == []


def test_one_word_of_a_device_in_one_file_is_enough(tmp_path: Path) -> None:
    assert found(tmp_path, model=MODEL, learning=LEARNING, script=SCRIPT.format(move=".cuda()")) == [
        ("model", "item-in-loop"),
        ("script", "dataloader-defaults"),
    ]


def test_a_file_that_other_programs_use_may_leave_the_host_with_these(tmp_path: Path) -> None:
    both = {"script": SCRIPT.format(move=""), "other": SCRIPT.format(move=".cuda()")}
    assert ("model", "item-in-loop") in found(tmp_path, model=MODEL, learning=LEARNING, **both)


def test_what_a_file_tries_out_itself_says_nothing_of_those_who_import_it(tmp_path: Path) -> None:
    assert found(tmp_path, optimizer=OPTIMIZER) == []
    user = "import torch\nfrom optimizer import Scaled\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    assert found(tmp_path, optimizer=OPTIMIZER, user=user) == [("optimizer", "sync-in-loop")]


HOST = Says.SCRIPT | Says.TRAINS | Says.BUILDS


@pytest.mark.parametrize(
    ("says", "imports", "told"),
    [
        ({"a": HOST}, {}, {}),
        ({"a": HOST, "b": Says.NOTHING}, {"a": "b"}, {"a": True, "b": True}),
        ({"a": HOST, "b": Says.NOTHING, "c": Says.DEVICE}, {"a": "b", "c": "b"}, {"a": True}),
        ({"a": HOST, "b": Says.DEVICE}, {"a": "b"}, {}),
        ({"a": HOST, "b": Says.DEVICE}, {"b": "a"}, {"a": False}),
        ({"a": Says.SCRIPT, "b": Says.TRAINS, "c": Says.BUILDS}, {"a": "b", "b": "c"}, dict.fromkeys("abc", True)),
        ({"a": HOST, "b": Says.NOTHING}, {"a": "b", "b": "a"}, {"a": True, "b": True}),
        ({"b": Says.TRAINS, "c": Says.BUILDS}, {"b": "c"}, {}),
    ],
    ids=["alone", "part", "shared", "part on a device", "part of one", "chain", "circle", "no script"],
)
def test_a_file_is_told_what_its_programs_say(
    says: dict[str, Says], imports: dict[str, str], told: dict[str, bool]
) -> None:
    assert on_host({path: Links(says=each) for path, each in says.items()}, imports) == told


@pytest.mark.parametrize(
    ("exporting", "fixes"),
    [
        ("import torch\nfrom helper import Decoder\n\ntorch.jit.script(Decoder()).save('decoder.pt')\n", 0),
        ("import torch\nfrom helper import Decoder\n\ntorch.save(Decoder(), 'decoder.pt')  # no jit.script()\n", 1),
        ("import torch\n\ntorch.jit.script(torch.nn.Linear(2, 2))\n", 1),
        (f"import torch\nfrom helper import Decoder\n\n@torch.jit.script\n{CALLING}", 0),
        (f"from torch.jit import script as compiled\nfrom helper import Decoder\n\n@compiled\n{CALLING}", 0),
        ("import torch.jit as compilers\nfrom helper import Decoder\n\ncompilers.script(Decoder())\n", 0),
        (f"import torch\nfrom helper import Decoder\n\n@torch.jit.ignore\n{CALLING}", 1),
    ],
    ids=["compiles it", "saves it", "compiles another", "decorates", "renames", "renames the module", "ignores it"],
)
def test_no_graph_is_put_around_what_another_file_scripts(tmp_path: Path, exporting: str, fixes: int) -> None:
    texts = {"decoder": DECODER, "helper": "from decoder import Decoder\n", "exporting": exporting}
    (loop,) = diagnostics(tmp_path, "decode-loop", **texts)
    assert len(loop.fixes) == fixes
    assert ("torch.jit" in loop.blocked) == (not fixes)


def test_only_what_asks_is_told_that_it_is_compiled() -> None:
    links = {
        "user": Links(says=Says.COMPILES, imports=("asks", "other")),
        "asks": Links(compile_query=True),
        "other": Links(),
    }
    assert contexts_of({f"{name}.py": each for name, each in links.items()}) == {"asks.py": Context(is_compiled=True)}
