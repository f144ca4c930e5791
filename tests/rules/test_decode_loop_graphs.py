"""Loops that must stay: what a graph would not hold is said with its line, and what is captured is left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_text
from perflint.engine.fix import fix_text
from perflint.engine.rule import Finding, Safety
from tests.fixture_cases import FIXTURES, default_options

RULE = rules_by_name()["decode-loop"]
REFUSED = [
    *(FIXTURES / "decode_loop" / f"{name}_before.py" for name in ("graph_refused", "graph_ends_refused")),
    *sorted((FIXTURES / "launch_bound_step").glob("refused*_before.py")),
]
_PARTLY = re.compile(r"run the forward and backward passes as one CUDA graph, but .+? \((.+)\)")
_REASON = re.compile(r"# no graph: (.+)$", re.M)
HEAD = '"""A file."""\n\nfrom __future__ import annotations\n\nimport os\n\n'
HELD = "no CUDA graph can capture the loop as it is: "
SCAN = """

def scan(x: torch.Tensor, decay: torch.Tensor):
    h = torch.zeros_like(x[:, 0])
    outputs = []
    for t in range(x.size(1)):
        h = decay * h + x[:, t]
        outputs.append(h)
    return torch.stack(outputs, 1)
"""


def _told(finding: Finding) -> str:
    """Why no graph holds all of it."""
    partly = [match for each in finding.fixes if (match := _PARTLY.fullmatch(each.title))]
    return partly[0][1] if partly else finding.blocked


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_a_graph_would_not_hold_is_said_with_its_line_and_with_what_to_do(path: Path) -> None:
    text, rule = path.read_text(encoding="utf-8"), rules_by_name()[path.parent.name.replace("_", "-")]
    expected = [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[1]}" for match in _REASON.finditer(text)]
    blocked = [_told(finding) for finding in check_text(text, [rule], default_options(rule))]
    assert len(blocked) == len(expected)
    assert [reason for reason in expected if not any(reason in each for each in blocked)] == []
    reasons = [each.rpartition(HELD)[2] for each in blocked]
    assert [each for each in reasons if not re.fullmatch(r"line \d+: .+(: |, and ).+", each)] == []


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import torch\n", "import torch\nfrom perflint.runtime.graphs import cuda_graph\n"),
        (
            "import torch\nimport numpy as np\nfrom torch import nn\n\nfrom .model import M\n",
            "import torch\nimport numpy as np\n"
            "from perflint.runtime.graphs import cuda_graph\nfrom torch import nn\n\nfrom .model import M\n",
        ),
        (
            "from perflint.runtime.graphs import graphed_loop\nimport torch\n",
            "from perflint.runtime.graphs import graphed_loop, cuda_graph\nimport torch\n",
        ),
        (
            "import torch\nfrom perflint.runtime.graphs import (\n    graphed_loop,  # in chunks\n)\n",
            "import torch\nfrom perflint.runtime.graphs import (\n    graphed_loop,  # in chunks\n    cuda_graph,\n)\n",
        ),
        (
            "import torch\n# both\nfrom perflint.runtime.graphs import cuda_graph, graphed_loop\n",
            "import torch\n# both\nfrom perflint.runtime.graphs import cuda_graph, graphed_loop\n",
        ),
        (
            "from perflint.runtime.graphs import *\nimport torch\n",
            "from perflint.runtime.graphs import *\nimport torch\n",
        ),
        ("import torch; import sys\n", "import torch; import sys\nfrom perflint.runtime.graphs import cuda_graph\n"),
    ],
)
def test_the_import_goes_where_it_belongs_and_is_made_once(imports: str, expected: str) -> None:
    result = fix_text(HEAD + imports + SCAN, [RULE], default_options(RULE), unsafe=True)
    assert result.text == HEAD + expected + SCAN.replace("def scan", "@cuda_graph\ndef scan")
    assert fix_text(result.text, [RULE], default_options(RULE), unsafe=True).applied == ()


def test_an_alias_of_the_decorator_is_used() -> None:
    head = "import torch\nfrom perflint.runtime.graphs import cuda_graph as captured\n"
    result = fix_text(head + SCAN, [RULE], default_options(RULE), unsafe=True)
    assert result.text == head + SCAN.replace("def scan", "@captured\ndef scan")


@pytest.mark.parametrize(
    "taken",
    [
        "cuda_graph = None",
        "async def cuda_graph(): ...",
        "try: ...\nexcept OSError as cuda_graph: ...",
        "match 1:\n    case cuda_graph: ...",
    ],
)
def test_a_name_that_is_taken_stands_in_the_way(taken: str) -> None:
    (finding,) = check_text(f"import torch\n\n{taken}\n" + SCAN, [RULE], default_options(RULE))
    assert finding.blocked.endswith("`cuda_graph` is something else in this file")


def test_a_graph_is_exact_only_where_no_gradients_are_recorded() -> None:
    quiet = SCAN.replace("def scan", "@torch.no_grad()\ndef scan")
    found = [check_text("import torch\n" + text, [RULE], default_options(RULE)) for text in (quiet, SCAN)]
    assert [finding.fixes[0].safety for (finding,) in found] == [Safety.EXACT, Safety.ROUNDING]


def test_a_comparison_in_brackets_stays_one_when_its_number_is_read_no_more() -> None:
    text = (FIXTURES / "decode_loop" / "graph_ends_before.py").read_text(encoding="utf-8")
    bracketed = text.replace("if word.item() == end:", "if ((word.sum()).item()) == (end):")
    assert bracketed != text
    result = fix_text(bracketed, [RULE], default_options(RULE), unsafe=True)
    assert "(word.sum() == end).reshape(1)" in result.text


def test_second_derivatives_stand_in_the_way() -> None:
    text = "import torch\n" + SCAN + "\n\ndef penalty(y, x):\n    return torch.autograd.grad(y, x, create_graph=True)\n"
    (finding,) = check_text(text, [RULE], default_options(RULE))
    assert finding.blocked.endswith("this file takes second derivatives, which go through no graph")


def test_a_graph_is_a_candidate_that_waits_for_unsafe() -> None:
    result = fix_text("import torch\n" + SCAN, [RULE], default_options(RULE))
    assert result.applied == ()
    assert [left.reason for left in result.remaining] == [
        "its fix adds a dependency, perflint-torch: --unsafe applies it"
    ]
