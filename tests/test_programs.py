"""Files that make up a program: whether it ever leaves the host is known in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.analysis.links import Context, Links, Says, Summary
from perflint.engine.results import Diagnostic
from perflint.engine.rule import Options
from perflint.project.files import discover
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.project.ties import contexts_of, on_host

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


SCHEDULED = """\
import torch


class Scheduled:
    def __init__(self, model, rate):
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
"""

SCHEDULING = """\
import torch
from scheduled import Scheduled


def build(make):
    model = make(){}
    return model, Scheduled(model, 0.1)
"""


@pytest.mark.parametrize(("move", "count"), [("", 0), (".cuda()", 1)])
def test_a_class_is_told_that_its_programs_speak_of_a_device(tmp_path: Path, move: str, count: int) -> None:
    texts = {"scheduled": SCHEDULED, "build": SCHEDULING.format(move)}
    assert len(diagnostics(tmp_path, "optimizer-not-fused", **texts)) == count


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


def test_only_what_asks_is_told_what_becomes_of_it() -> None:
    links = {
        "user": Links(says=Says.COMPILES | Says.TRANSFORMS, imports=("asks", "other")),
        "asks": Links(says_query=Says.COMPILES),
        "other": Links(),
    }
    told = contexts_of({f"{name}.py": each for name, each in links.items()})
    assert told == {"asks.py": Context(told=Says.COMPILES)}


def test_only_who_asks_is_told_that_a_function_draws_data() -> None:
    links = {
        "table.py": Links(summaries=(Summary("pick", draws=True),)),
        "calls.py": Links(result_queries=("table.pick",), guess_queries=("table.pick",)),
        "asks.py": Links(draw_queries=("table.pick",)),
    }
    told = (Summary("table.pick", draws=True),)
    assert contexts_of(links) == {"asks.py": Context(summaries=told), "table.py": Context(drawing=("pick",))}


ATTENTION = """\
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, size, heads, length):
        super().__init__()
        self.qkv, self.heads, self.scale = nn.Linear(size, 3 * size), heads, 0.5
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(B, T, C)
"""
DERIVED = "class Prefix(Attention):\n    def __init__(self):\n        super().__init__(8, 2, 16)\n        "


@pytest.mark.parametrize(
    ("using", "fixes"),
    [
        ("", 1),
        ("model.qkv.weight.data.zero_()\nmodel.epoch = 1\n", 1),
        ("class Other(nn.Module):\n    def __init__(self):\n        self.scale, self.bias = 1, 2\n", 1),
        ("def init(module):\n    if isinstance(module, nn.Linear):\n        nn.init.zeros_(module.bias)\n", 1),
        (f"{DERIVED}self.bias[..., :3] = 1\n", 0),
        (f"{DERIVED}self.scale = nn.Parameter(torch.ones(()))\n", 0),
        (f"class Middle(Attention):\n    pass\n\n{DERIVED.replace('(Attention', '(Middle')}del self.scale\n", 0),
        ("model.bias.fill_(1)\n", 0),
        ("model.bias.data = torch.ones(16, 16)\n", 0),
        ("nn.init.ones_(model.bias)\n", 0),
        ("model.scale = torch.ones(())\n", 0),
        ("setattr(model, 'scale', torch.ones(()))\n", 0),
        ("(first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)\n", 0),
        ("torch.func.vmap(model)(x)\n", 0),
    ],
)
def test_attention_whose_parts_other_files_edit_or_that_they_transform_stays(
    tmp_path: Path, using: str, fixes: int
) -> None:
    user = f"import torch\nfrom torch import nn\nfrom helper import Attention\n\nmodel = Attention(8, 2, 16)\n{using}"
    texts = {"attention": ATTENTION, "helper": "from attention import Attention\n", "user": user}
    (found,) = diagnostics(tmp_path, "attention-by-hand", **texts)
    assert len(found.fixes) == fixes, found.blocked


@pytest.mark.parametrize(
    ("imports", "fixes"),
    [
        ("from torch.utils.data import DataLoader\nfrom util import *\n", 0),
        ("from util import *\nfrom torch.utils.data import DataLoader\n", 1),
        ("from torch.utils.data import DataLoader\nfrom other import *\n", 1),
        ("from torch.utils.data import *\nfrom util import *\n", 0),
    ],
)
def test_a_name_that_a_later_star_import_rebinds_is_no_longer_torch_s(tmp_path: Path, imports: str, fixes: int) -> None:
    main = f"import torch\n{imports}\ndevice = torch.device('cuda')\ndata = list(range(8))\n"
    main += "for x in DataLoader(data, batch_size=2):\n    print(x.to(device).sum())\n"
    util = "class DataLoader(list):\n    def __init__(self, data, batch_size):\n        super().__init__([data])\n"
    found = diagnostics(tmp_path, "dataloader-defaults", main=main, util=util, other="class Loader:\n    pass\n")
    assert len(found) == fixes


CLIPPING = """\
import torch

DEVICE = torch.device("cuda")


def clip_grad(net):
    for p in net.parameters():
        p.grad.data.clamp_(-1, 1)


def clipped(net):
    try:
        print(torch.load("net.pt"))
    except RuntimeError:
        clip_grad(net)
"""


@pytest.mark.parametrize(
    ("calling", "is_handled"),
    [
        ("clipping.clip_grad(model)", False),
        ("try:\n    clipping.clip_grad(model)\nexcept RuntimeError:\n    pass", True),
        ("try:\n    clipping.clip_grad(model)\nexcept (KeyboardInterrupt, ImportError):\n    pass", False),
        ("try:\n    pass\nexcept RuntimeError:\n    clipping.clip_grad(model)", False),
        ("with contextlib.suppress(Exception):\n    clipping.clipped(model)", True),
        (
            "def step():\n    clipping.clipped(model)\ntry:\n    step()\nexcept Exception as error:\n    print(error)",
            True,
        ),
    ],
)
def test_an_error_half_way_is_seen_where_another_file_handles_it(
    tmp_path: Path, calling: str, is_handled: bool
) -> None:
    main = f"import contextlib\nimport torch\nimport clipping\n\nmodel = torch.nn.Linear(2, 2).cuda()\n{calling}\n"
    (found,) = diagnostics(tmp_path, "param-loop", clipping=CLIPPING, main=main)
    assert [("half-way" in fix.title) for fix in found.fixes] == [is_handled], found


ADDED = """\
import torch

DEVICE = torch.device("cuda")


def added(row, x):
    spread = row.unsqueeze(0).repeat(x.size(0), 1, 1)
    return (spread * 2) + x.to(DEVICE)


def outer(row, x):
    return added(row, x)
"""


@pytest.mark.parametrize(
    ("calling", "fixes"),
    [
        ("print(rows, x)", 1),
        ("print(added.added(rows.T, x).view(-1))", 0),
        ("def show(rows, x):\n    y = added.outer(rows.T, x)\n    return torch.relu(y).stride()", 0),
    ],
)
def test_a_copy_stays_where_another_file_is_given_what_is_made_of_it_and_may_ask_for_its_layout(
    tmp_path: Path, calling: str, fixes: int
) -> None:
    main = f"import torch\nimport added\nfrom data import rows, x\n\n{calling}\n"
    (found,) = diagnostics(tmp_path, "repeat-not-broadcast", added=ADDED, main=main)
    assert len(found.fixes) == fixes, found.blocked


METERS = """\
import torch


class AverageMeter:
    def __init__(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n


def accuracy(output, target):
    return output.argmax(1).eq(target).float().mean()
"""
STEPS = """\
import torch
from meters import AverageMeter, accuracy

device = torch.device("cuda")
model, criterion = torch.nn.Linear(4, 3).to(device), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses, top = AverageMeter(), AverageMeter()
for x, y in loader:
    x, y = x.to(device), y.to(device)
    output = model(x)
    loss = criterion(output, y)
    losses.update(loss.item(), x.size(0))
    top.update(accuracy(output, y), x.size(0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "is_captured"),
    [
        ("", "", True),
        ("self.count += n", "self.count += n\n        print(val)", False),
        ("self.count += n", "self.count += model.bias[0]", False),
        ("return output", "print(output)\n    return output", False),
        (".mean()", ".mean().item()", False),
        ("loss.backward()", "losses.val = model.weight\n    loss.backward()", False),
    ],
)
def test_a_meter_of_another_file_is_told_of_the_step_behind_it(
    tmp_path: Path, old: str, new: str, is_captured: bool
) -> None:
    texts = {"meters": METERS, "train": STEPS}
    (found,) = diagnostics(
        tmp_path, "launch-bound-step", **{name: text.replace(old, new) for name, text in texts.items()}
    )
    assert [bool(found.fixes)] == [is_captured], found
