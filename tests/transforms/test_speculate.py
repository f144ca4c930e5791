"""Loops that are lifted by what a run has shown: wrong assumptions are caught by the guard, at every call anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
from torch import nn  # noqa: E402

from perflint.analysis.links import ALONE, Seen  # noqa: E402
from perflint.engine.catalogue import all_rules  # noqa: E402
from perflint.engine.check import check_text  # noqa: E402
from perflint.engine.fix import fix_text  # noqa: E402

RUN = "train.py, 2026-11-23"
RULES = [rule for rule in all_rules() if rule.name == "decode-loop"]
HEAD = "import torch\nfrom torch import nn\n\n\n"
PRODUCTS = f"""{HEAD}def run(x, w):
    out = []
    for t in range(x.shape[1]):
        out.append(torch.tanh(x[:, t] @ w))
    return torch.stack(out, dim=1)
"""
WEIGHTED = f"""{HEAD}def run(x, w):
    out = []
    for t in range(x.shape[1]):
        out.append(x[:, t] * w)
    return out
"""
HEADS = f"""{HEAD}class Net(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        out = []
        for t in range(x.size(1)):
            out.append(self.head(x[:, t]))
        return torch.stack(out, dim=1)


def run(x, head):
    return Net(head).train()(x)
"""


def of(function: str, **ranks: int) -> tuple[Seen, ...]:
    """Tensors of these ranks were seen."""
    return tuple(Seen(function, name, "torch.Tensor", rank, RUN) for name, rank in ranks.items())


def head(kind: str) -> tuple[Seen, ...]:
    """A module of this class was seen."""
    return (Seen("forward", "self.head", kind, None, RUN), *of("forward", x=3))


def fixed(text: str, seen: tuple[Seen, ...], *, unsafe: bool = True) -> str:
    """The program with the candidates that come of what was seen."""
    return fix_text(text, RULES, {}, unsafe=unsafe, context=replace(ALONE, seen=seen)).text


def outcome(text: str, *given: Any) -> Any:
    """What a program computes, or how it fails."""
    torch.manual_seed(3)
    names: dict[str, Any] = {}
    exec(compile(text, "program.py", "exec"), names)
    try:
        return names["run"](*given)
    except Exception as error:
        return type(error)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.allclose(one, other, equal_nan=True)
    return bool(np.all(one == other)) and type(one) is type(other)


class Counting(nn.Linear):
    """Counts its calls, as a profiler of its own may."""

    calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return super().forward(x) * self.calls


class Steps:
    """Looks like a tensor, and is none."""

    shape = (2, 3)

    def __init__(self) -> None:
        self.asked = 0

    def __getitem__(self, key: Any) -> Any:
        self.asked += 1
        return torch.full((2, 4), float(self.asked))


PRODUCTS_SEEN, WEIGHTED_SEEN = of("run", x=3, w=2), of("run", x=2, w=1)
rand = torch.rand
PLANTED: dict[str, tuple[str, tuple[Seen, ...], Callable[[], tuple[Any, ...]], Callable[[], tuple[Any, ...]]]] = {
    "a rank that differs in evaluation": (
        *(PRODUCTS, PRODUCTS_SEEN, lambda: (rand(2, 3, 4), rand(4, 5)), lambda: (rand(4, 3), rand(4, 5))),
    ),
    "a batch of batches": (
        *(PRODUCTS, PRODUCTS_SEEN, lambda: (rand(2, 3, 4), rand(4, 5)), lambda: (rand(2, 3, 6, 4), rand(4, 5))),
    ),
    "weights of a batch": (
        *(PRODUCTS, PRODUCTS_SEEN, lambda: (rand(2, 3, 4), rand(4, 5)), lambda: (rand(2, 3, 4), rand(2, 4, 5))),
    ),
    "what only looks like a tensor": (
        *(PRODUCTS, PRODUCTS_SEEN, lambda: (rand(2, 3, 4), rand(4, 5)), lambda: (Steps(), rand(4, 5))),
    ),
    "arrays in place of tensors": (
        *(WEIGHTED, WEIGHTED_SEEN, lambda: (rand(4, 3), rand(4)), lambda: (np.ones((4, 3)), np.arange(4.0))),
    ),
    "no weight at all": (*(WEIGHTED, WEIGHTED_SEEN, lambda: (rand(4, 3), rand(4)), lambda: (rand(4, 3), None)),),
    "a weight with an axis for time": (
        *(WEIGHTED, WEIGHTED_SEEN, lambda: (rand(4, 3), rand(4)), lambda: (rand(4, 3), rand(4, 4))),
    ),
    "a weight that is a number": (
        *(WEIGHTED, WEIGHTED_SEEN, lambda: (rand(4, 3), rand(4)), lambda: (rand(4, 3), 2.0)),
    ),
    "a dtype that changes": (
        *(WEIGHTED, WEIGHTED_SEEN, lambda: (rand(4, 3), rand(4)), lambda: (torch.arange(12).view(4, 3), rand(4))),
    ),
    "a wider dtype of no axes": (
        *(
            WEIGHTED,
            WEIGHTED_SEEN,
            lambda: (rand(4, 3), rand(4)),
            lambda: (torch.arange(12).view(4, 3), torch.tensor(0.5)),
        ),
    ),
    "a module that draws, by configuration": (
        *(HEADS, head("torch.nn.Linear"), lambda: (rand(2, 3, 4), nn.Linear(4, 5))),
        lambda: (rand(2, 3, 4), nn.Sequential(nn.Linear(4, 5), nn.Dropout())),
    ),
    "a module with statistics": (
        *(HEADS, head("torch.nn.Tanh"), lambda: (rand(2, 3, 4), nn.Tanh())),
        lambda: (rand(2, 3, 4), nn.BatchNorm1d(4)),
    ),
    "a subclass with a state": (
        *(HEADS, head("torch.nn.Linear"), lambda: (rand(2, 3, 4), nn.Linear(4, 5))),
        lambda: (rand(2, 3, 4), Counting(4, 5)),
    ),
    "a function in a module's place": (
        *(HEADS, head("torch.nn.Linear"), lambda: (rand(2, 3, 4), nn.Linear(4, 5))),
        lambda: (rand(2, 3, 4), lambda x: x + torch.rand(())),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_assumption_is_caught_by_the_guard(name: str) -> None:
    text, seen, right, wrong = PLANTED[name]
    changed = fixed(text, seen)
    assert changed != text and "    else:\n" in changed
    for given in (right, wrong):
        torch.manual_seed(5)
        before = outcome(text, *given())
        torch.manual_seed(5)
        assert same(before, outcome(changed, *given()))


def test_a_candidate_is_never_applied_without_being_asked_for() -> None:
    context = replace(ALONE, seen=PRODUCTS_SEEN)
    assert fixed(PRODUCTS, PRODUCTS_SEEN, unsafe=False) == PRODUCTS
    (finding,) = check_text(PRODUCTS, RULES, {}, context)
    (fix,) = finding.fixes
    assert fix.title == (
        "compute all steps at once, if `w` is a tensor of 2 axes and `x` is a tensor of 3 axes, "
        f"as seen in the run ({RUN})"
    )
    assert fix.assumes and not fix.is_safe
    (left,) = fix_text(PRODUCTS, RULES, {}, context=context).remaining
    assert left.reason == "its fix assumes what a run has shown: --unsafe applies it"


def test_no_more_is_assumed_than_the_proof_needs() -> None:
    text = fixed(HEADS, head("torch.nn.Linear"))
    assert "if type(self.head) is torch.nn.Linear:\n" in text and "dim()" not in text


@pytest.mark.parametrize(
    "kind", ["torch.nn.ReLU", "torch.nn.BatchNorm1d", "torch.nn.Dropout", "torch.nn.LSTM", "models.Head"]
)
def test_a_class_that_does_not_tell_what_a_module_does_is_no_fact(kind: str) -> None:
    assert fixed(HEADS, head(kind)) == HEADS


def test_a_variable_that_the_loop_changes_is_not_asked_about() -> None:
    text = PRODUCTS.replace("        out.append(", "        w = w * 2\n        out.append(")
    assert fixed(text, PRODUCTS_SEEN) == text


def test_a_test_of_the_rank_in_the_program_tells_it() -> None:
    loop = PRODUCTS.partition("    for")[2]
    body = "    for" + loop.partition("    return")[0]
    inner = "".join(f"    {line}\n" for line in body.splitlines())
    text = PRODUCTS.replace("run(x, w)", "run(x: torch.Tensor, w: torch.Tensor)").replace(
        body, f"    if x.dim() == 3 and w.dim() == 2:\n{inner}"
    )
    assert ".transpose(0, 1) @ w" in fixed(text, (), unsafe=False)


@pytest.mark.parametrize(
    ("changes", "is_lifted"),
    [
        ("pass", True),
        ("self.head = nn.Dropout()", False),
        ("self.reset()", False),
        ("setattr(self, 'head', nn.Tanh())", False),
    ],
)
def test_a_test_of_the_class_tells_a_module_that_stays(changes: str, is_lifted: bool) -> None:
    loop = "        for t in range(x.size(1)):\n            out.append(self.head(x[:, t]))\n"
    inner = "".join(f"    {line}\n" for line in f"        {changes}\n{loop}".splitlines())
    text = HEADS.replace(loop, f"        if type(self.head) is nn.Linear:\n{inner}")
    if "reset" in changes:
        text = text.replace(
            "    def forward", "    def reset(self):\n        self.head = nn.Dropout()\n\n    def forward"
        )
    assert (fixed(text, (), unsafe=False) != text) is is_lifted
