"""Patches of whole files: what is written, what the diff shows, and what is said about the rest."""

from __future__ import annotations

import json
import pickle
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from perflint.analysis.program import Program
from perflint.documents.disk import Position, Unwritable
from perflint.documents.document import decode, read
from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_document
from perflint.engine.rule import Edit, Finding, Fix, Options, Rule, Safety
from perflint.project.files import discover
from perflint.project.patch import Patch, patch_document, patch_files, readable_diff, unified_diff
from perflint.project.settings import Settings, load


class Renaming(Rule):
    """Calls `new` instead of `old`, and `→` instead of `arrow`; `risky` is not exact and `stuck` has no fix."""

    group: ClassVar[str] = "compute"

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        names = {"old": "new", "arrow": "'→'", "risky": "new", "broken": "(", "growing": "growing + growing"}
        for match in re.finditer(r"\b(old|arrow|risky|broken|growing|stuck)\b", program.text):
            safety = Safety.BEHAVIOUR if match[0] == "risky" else Safety.EXACT
            edit = Edit(*match.span(), names.get(match[0], ""))
            fixes = () if match[0] == "stuck" else (Fix(f"Rename {match[0]}", safety, (edit,)),)
            yield self.finding(
                match.span(), match[0], kind="old", fixes=fixes, blocked="it is stuck" if not fixes else ""
            )


RULES = [Renaming()]


def patch_of(text: str, path: str = "train.py", unsafe: bool = False) -> Patch:
    return patch_document(decode(path, text.encode()), RULES, {}, unsafe=unsafe)


def as_notebook(*sources: list[str]) -> str:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def test_a_patch_counts_what_it_fixes_and_says_what_it_leaves_and_where() -> None:
    patch = patch_of("import torch\nold(); risky()\nstuck()\n")
    assert patch.after == "import torch\nnew(); risky()\nstuck()\n"
    assert [(item.finding.rule, item.fix.title, item.fix.safety) for item in patch.applied] == [
        ("test-patch", "Rename old", "exact")
    ]
    assert [(item.start, item.reason) for item in patch.remaining] == [
        (Position(None, 20, 2, 8), "its fix changes behaviour: --unsafe applies it"),
        (Position(None, 28, 3, 1), "it is stuck"),
    ]
    assert patch_of("import torch\nrisky()\n", unsafe=True).after == "import torch\nnew()\n"


@pytest.mark.parametrize(
    "data",
    [
        "import torch\r\nx = 1\x0c\nold()\n\ny = 'é'\nold()".encode(),
        "\ufeffimport torch\nold('é')\n".encode(),
        "# coding: latin-1\nimport torch\ny = 'é'\nold('é')\n".encode("latin-1"),
        "# coding: shift-jis\nimport torch\ny = 'ソ'\nold('表')\n".encode("shift-jis"),
    ],
)
@pytest.mark.parametrize("tool", [["git", "apply", "-"], ["patch", "-p1", "--binary", "--fuzz=0"]])
def test_the_diff_is_one_that_git_and_patch_apply_in_any_encoding(tmp_path: Path, tool: list[str], data: bytes) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"there is no {tool[0]} here")
    path = tmp_path / "train.py"
    path.write_bytes(data)
    patch = patch_document(decode("train.py", data), RULES, {})
    subprocess.run(tool, cwd=tmp_path, input=unified_diff(patch), check=True)
    assert patch.document is not None
    assert path.read_bytes() == patch.document.encode(patch.after) != data


def test_the_diff_is_readable_in_a_terminal_whatever_the_encoding_of_the_file() -> None:
    data = "# coding: latin-1\nimport torch\nold('é')\n".encode("latin-1")
    assert "+new('é')\n" in readable_diff(patch_document(decode("train.py", data), RULES, {}))


def test_the_diff_of_a_file_that_repeats_itself_holds_what_is_changed_and_no_more() -> None:
    drawn = random.Random(0)
    before, after = ("".join(f"x = f{drawn.randrange(10)}(x)\n" for _ in range(120)) for _ in range(2))
    lines = readable_diff(patch_of(f"import torch\n{before}old()\n{after}")).splitlines()[2:]
    assert [line for line in lines if line[0] in "+-"] == ["-old()", "+new()"]


def test_the_diff_of_a_notebook_names_the_cell_and_shows_its_own_lines() -> None:
    patch = patch_of(as_notebook(["import torch"], ["!ls\n", "old('é')"]), "a.ipynb")
    assert readable_diff(patch) == (
        "--- a/a.ipynb\n+++ b/a.ipynb\n@@ -1,2 +1,2 @@ cell 1\n !ls\n"
        "-old('é')\n\\ No newline at end of file\n+new('é')\n\\ No newline at end of file\n"
    )


def test_what_is_left_in_a_notebook_cites_the_cell_and_its_line() -> None:
    loop = "for x, y in loader:\n    total += model(x.cuda()).sum().item()\n    total = abs(total)"
    text = as_notebook(["import torch\n", "total = 0.0"], loop.splitlines(keepends=True))
    document, rules = decode("a.ipynb", text.encode()), [rules_by_name()["item-in-loop"]]
    reasons = [*(left.reason for left in patch_document(document, rules, {}).remaining)]
    reasons += [diagnostic.blocked for diagnostic in check_document(document, rules, {})[0].diagnostics]
    assert reasons == ["line 3 of cell 1 sets `total` to something else"] * 2


def test_nothing_to_fix_is_an_empty_diff() -> None:
    patch = patch_of("import torch\n")
    assert unified_diff(patch) == b""
    assert not patch.changed


def test_a_file_is_written_once_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"\xef\xbb\xbfimport torch\r\nold()\r\n")
    patch = patch_document(read(path), RULES, {})
    assert path.read_bytes() == b"\xef\xbb\xbfimport torch\r\nold()\r\n"
    patch.write()
    assert path.read_bytes() == b"\xef\xbb\xbfimport torch\r\nnew()\r\n"
    with pytest.raises(Unwritable):
        patch.write()


def test_a_notebook_is_written_with_every_other_byte_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    raw = as_notebook(["import torch\n", "%time old()"], ["# note\n", "old()\n"], ["print 'python 2'"])
    path.write_text(raw)
    patch = patch_document(read(path), RULES, {})
    patch.write()
    assert path.read_text() == raw.replace("old()", "new()")
    assert patch.problem is not None
    assert "cell 2" in patch.problem.message


def test_what_the_encoding_lacks_is_left_with_the_reason_and_the_rest_is_fixed() -> None:
    text = "# coding: latin-1\nimport torch\narrow\nold()\n"
    patch = patch_of(text)
    assert patch.after == text.replace("old", "new")
    assert [item.reason for item in patch.remaining] == [
        "its fix cannot be written: the file's encoding, iso-8859-1, has no '→'"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"import torch\nold(\n", "not valid Python"), (b"caf\xe9 = 1\n", "is not utf-8")],
)
def test_a_file_that_cannot_be_fixed_is_a_problem(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    settings = Settings(root=tmp_path, cache=False, jobs=1)
    (patch,) = patch_files(discover([path], settings), settings)
    assert patch.problem is not None
    assert message in patch.problem.message
    assert not patch.changed


LOADER = """\
import torchvision
from torch.utils.data import DataLoader


def get_loader(root):
    return DataLoader(torchvision.datasets.CIFAR10(root), batch_size=64, shuffle=True)
"""
TRAIN = """\
import torch
from data import get_loader

model = torch.nn.Linear(3, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in get_loader("cifar"):
    loss = model(images.cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_the_patch_of_one_file_makes_due_in_another_is_patched_at_once(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").touch()
    (tmp_path / "data.py").write_text(LOADER)
    (tmp_path / "train.py").write_text(TRAIN)
    settings = load(tmp_path, overrides={"unsafe": True, "cache": False}).settings
    loader, train = patch_files(discover([tmp_path], settings), settings)
    assert "num_workers=" in loader.after and 'if __name__ == "__main__":' in train.after
    for patch in (loader, train):
        patch.write()
    assert not any(patch.changed for patch in patch_files(discover([tmp_path], settings), settings))


CLASS = """\
import torchvision
from torch.utils.data import DataLoader


class Loader(DataLoader):
    def __init__(self, root):
        super().__init__(torchvision.datasets.CIFAR10(root), batch_size=64, shuffle=True{workers})
"""


@pytest.mark.parametrize("workers", ["", ", num_workers=4, pin_memory=True"])
def test_a_file_that_asks_others_for_less_once_it_is_patched_stays_patched(tmp_path: Path, workers: str) -> None:
    (tmp_path / "perflint.toml").touch()
    (tmp_path / "data.py").write_text(CLASS.format(workers=workers))
    (tmp_path / "train.py").write_text(TRAIN.replace("get_loader", "Loader"))
    rules = ("dataloader-defaults", "missing-main-guard", "optimizer-not-fused")
    settings = load(tmp_path, overrides={"unsafe": True, "cache": False, "select": rules}).settings
    loader, train = patch_files(discover([tmp_path], settings), settings)
    assert "num_workers=" in loader.after or not loader.changed
    assert 'if __name__ == "__main__":' in train.after and "fused=True" in train.after
    assert {each.finding.rule for each in train.applied} == {"missing-main-guard", "optimizer-not-fused"}


def test_rules_that_are_wrong_change_nothing_and_are_reported() -> None:
    endless = patch_of("import torch\ngrowing\nold()\n")
    assert endless.problem is not None
    assert "because of a bug: the fixes of test-patch do not come to an end" in endless.problem.message
    assert not endless.changed
    broken = patch_of("import torch\nbroken\nold()\n")
    assert broken.problem is not None
    assert "because of a bug: a fix of test-patch fails: " in broken.problem.message
    assert not broken.changed


def test_a_notebook_of_another_language_is_skipped() -> None:
    raw = '{"cells": [], "metadata": {"kernelspec": {"language": "R"}}, "nbformat": 4}'
    assert "runs R" in patch_of(raw, "a.ipynb").skipped


def test_patches_travel_between_processes() -> None:
    for patch in (patch_of("import torch\nold()\n"), patch_of(as_notebook(["import torch; old()"]), "a.ipynb")):
        assert pickle.loads(pickle.dumps(patch)) == patch
        assert patch.changed


MOVED = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
    return total


def search(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
        if loss.item() > 3:
            break
"""


def test_what_is_left_is_told_at_its_place_in_the_file_as_it_is_and_as_it_will_be() -> None:
    patch = patch_document(decode("a.py", MOVED.encode()), [rules_by_name()["item-in-loop"]], {})
    (left,), (remaining,) = patch.left, patch.remaining
    assert MOVED.splitlines()[left.start.line - 1].strip() == "if loss.item() > 3:"
    assert patch.after.splitlines()[remaining.start.line - 1].strip() == "if loss.item() > 3:"
    assert (remaining.start.line, remaining.start.column) == (left.start.line + 1, left.start.column)
