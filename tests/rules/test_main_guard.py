"""Guarded scripts are run: under the start method spawn, with real workers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from perflint.documents.notebook import parse
from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
from tests import forks
from tests.fixture_cases import FIXTURES, default_options

RULE = rules_by_name()["missing-main-guard"]
LOADERS = rules_by_name()["dataloader-defaults"]
SPAWN = (
    "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)\n"
    "import warnings; warnings.simplefilter('ignore')\n"
)
RUNNABLE = ["certain_loop", "through_calls", "processes", "kept_constant"]


def run(text: str, folder: Path) -> CompletedProcess[str]:
    """Run a program as a script, under the start method spawn; with one worker, for an epoch, as each imports torch."""
    script = folder / "script.py"
    script.write_bytes((SPAWN + re.sub(r"(num_workers=|default=| in range\()[1-9]", r"\g<1>1", text)).encode())
    return forks.run([sys.executable, str(script)], timeout=120)


def fixed(text: str) -> str:
    return fix_text(text, [RULE], default_options(RULE)).text


def without_workers(text: str) -> str:
    return re.sub(r"num_workers=\S+?(?=\))", "num_workers=0", text)


@pytest.fixture(autouse=True)
def _needs_torch() -> None:
    pytest.importorskip("torch")


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_script_fails_under_spawn_before_and_works_after(name: str, tmp_path: Path) -> None:
    before = (FIXTURES / "missing_main_guard" / f"{name}_before.py").read_text(encoding="utf-8")
    assert "bootstrapping phase" in run(before, tmp_path).stderr
    worked = run(fixed(before), tmp_path)
    assert (worked.returncode, worked.stderr) == (0, "")
    assert worked.stdout
    if "num_workers" in before:  # and prints what it does without workers
        assert worked.stdout == run(without_workers(before), tmp_path).stdout


def test_workers_and_guard_of_one_fix_give_the_batches_of_the_main_process(tmp_path: Path) -> None:
    before = (FIXTURES / "dataloader_defaults" / "needs_guard_before.py").read_text(encoding="utf-8")
    before = before.replace("batch_size=4)", "batch_size=4, shuffle=True)").replace(
        "dataset = ", "torch.manual_seed(1)\ndataset = "
    )
    result = fix_text(before, [LOADERS], default_options(LOADERS))
    assert result.text.count("num_workers=4") == 2 and result.text.count("__main__") == 1
    after = run(result.text, tmp_path)
    assert after.returncode == 0, after.stderr
    assert after.stdout == run(before, tmp_path).stdout != ""


LOOP = "from torch.utils.data import DataLoader\nloader = DataLoader(range(4), num_workers=1)\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for x in loader:\r\n\tprint(x)\r\n", 'if __name__ == "__main__":\r\n\tfor x in loader:\r\n\t\tprint(x)\r\n'),
        ("\ffor x in loader:\n  print(x)\n", '\fif __name__ == "__main__":\n  for x in loader:\n    print(x)\n'),
        (
            "for x in loader:\n    print('''\na\n  b''', x,\n  \\\n  f'''{x}\nc''')\n",
            "if __name__ == \"__main__\":\n    for x in loader:\n        print('''\na\n  b''', x,\n  \\\n"
            "  f'''{x}\nc''')\n",
        ),
        ("y = 1; print(list(loader))  # 2\n", 'if __name__ == "__main__":\n    y = 1; print(list(loader))  # 2\n'),
        ("for x in loader: print(x)", 'if __name__ == "__main__":\n    for x in loader: print(x)'),
    ],
    ids=["crlf and tabs", "form feed", "strings over lines", "two statements on a line", "no final line break"],
)
def test_layout_survives(body: str, expected: str) -> None:
    head = f"{LOOP}import sys\n"  # above which nothing moves
    head = head.replace("\n", "\r\n") if "\r" in body else head
    assert fixed(head + body) == head + expected


def test_a_notebook_needs_no_guard() -> None:
    cell = '{"cell_type": "code", "metadata": {}, "outputs": [], "source": %s}'
    lines = [
        "from torch.utils.data import DataLoader\n",
        "for x in DataLoader(range(4), num_workers=1):\n",
        "    print(x)",
    ]
    source = json.dumps(lines)
    text = parse('{"cells": [%s], "metadata": {}}' % (cell % source)).text
    assert "DataLoader" in text
    assert check_text(text, [RULE], default_options(RULE)) == ()


def test_only_one_finding_a_file() -> None:
    text = LOOP + "for x in loader: print(x)\n\nfor x in loader: print(x)\n"
    assert len(check_text(text, [RULE], default_options(RULE))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "print(len(loader), loader.batch_size)",
        "def f():\n    return list(loader)",
        "if __name__ == '__main__':\n    print(list(loader))",
        "if '__main__' == __name__:\n    print(list(loader))",
        "f = lambda: list(loader)",
    ],
)
def test_what_reads_no_batch_at_module_level_is_left_alone(body: str) -> None:
    assert check_text(f"{LOOP}{body}\n", [RULE], default_options(RULE)) == ()


@pytest.mark.parametrize(
    "body",
    [
        "batch = next(iter(loader))",
        "batches = [x for x in loader]",
        "it = iter(loader)",
        "for i, x in enumerate(loader, 1): print(x)",
        "from tqdm import tqdm\nfor x in tqdm(loader): print(x)",
        "def f(l):\n    for x in l: print(x)\nf(loader)",
        "def g():\n    yield from loader\nprint(list(g()))",
        "with open('x') as f:\n    print(list(loader))",
        "loaders = {k: DataLoader(range(2), num_workers=2) for k in 'ab'}\nfor x in loaders['a']: print(x)",
        "import multiprocessing as mp\nwith mp.Pool(2) as pool: print(pool.map(abs, [1]))",
        "from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor().submit(print)",
        "import torch.multiprocessing as mp\nctx = mp.get_context('spawn')\np = ctx.Process(target=print)\np.start()",
        "import pytorch_lightning as pl\nfrom m import net\npl.Trainer().fit(net, loader)",
    ],
)
def test_every_way_to_start_workers_is_seen(body: str) -> None:
    assert [finding.kind for finding in check_text(f"{LOOP}{body}\n", [RULE], default_options(RULE))] == ["certain"]
