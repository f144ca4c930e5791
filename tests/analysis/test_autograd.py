"""Where gradients are recorded, what differentiates, which modules train, and who may back-propagate a result."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perflint.analysis.program import Effect, Fate, GradMode, Program
from perflint.project.files import discover
from perflint.project.run import check_files
from perflint.project.settings import Settings

HEAD = "import contextlib\nimport torch\nfrom torch import nn\n"


def program_of(text: str) -> Program:
    return Program(HEAD + text)


def place(program: Program, name: str = "here") -> ast.Call:
    """The call of that name."""
    return next(each for each in program.of_type(ast.Call) if getattr(each.func, "id", "") == name)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("def f():\n    here()\n", GradMode.ON),
        ("@torch.no_grad()\ndef f():\n    here()\n", GradMode.OFF),
        ("@torch.inference_mode()\ndef f():\n    with torch.enable_grad():\n        here()\n", GradMode.ON),
        ("def f(flag):\n    with torch.set_grad_enabled(flag):\n        here()\n", GradMode.UNKNOWN),
        ("def f():\n    quiet = torch.no_grad()\n    with quiet:\n        here()\n", GradMode.OFF),
        (
            "def f(q):\n    c = torch.no_grad() if q else contextlib.nullcontext()\n    with c:\n        here()\n",
            GradMode.UNKNOWN,
        ),
        ("@eval_mode\ndef f():\n    here()\n", GradMode.UNKNOWN),
        ("def f():\n    here()\nwith torch.no_grad():\n    f()\n", GradMode.OFF),
        ("def f():\n    here()\nwith torch.no_grad():\n    f()\nf()\n", GradMode.UNKNOWN),
        ("def f():\n    here()\ndef g():\n    f()\n@torch.no_grad()\ndef h():\n    g()\n", GradMode.OFF),
        ("def f():\n    g()\ndef g():\n    f()\n    here()\n", GradMode.ON),
        ("torch.set_grad_enabled(False)\ndef f():\n    here()\n", GradMode.UNKNOWN),
        ("class A:\n    def validation_step(self):\n        here()\n", GradMode.UNKNOWN),
    ],
)
def test_the_mode_is_that_of_contexts_decorators_and_callers(text: str, mode: GradMode) -> None:
    program = program_of(text)
    assert program.grad_mode(place(program)) is mode


def test_recursion_gives_one_mode_wherever_it_is_asked_first() -> None:
    text = "def f():\n    g()\n    here()\ndef g():\n    f()\n    there()\nwith torch.no_grad():\n    f()\ng()\n"
    for names in (("here", "there"), ("there", "here")):
        program = program_of(text)
        assert {program.grad_mode(place(program, name)) for name in names} == {GradMode.UNKNOWN}


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("def f(m):\n    m.eval()\n    here()\n", {"m": False}),
        ("def f(m):\n    m.train(False)\n    here()\n", {"m": False}),
        ("def f(m, flag):\n    m.train(flag)\n    here()\n", {}),
        ("def f(m, flag):\n    if flag:\n        m.eval()\n    here()\n", {}),
        ("def f(m):\n    m.eval()\n    m.train()\n    here()\n", {"m": True}),
        ("def f(m):\n    for _ in range(3):\n        here()\n        m.train()\n        m.eval()\n", {}),
        ("def f(m):\n    m.eval()\n    for _ in range(3):\n        here()\n        m.train()\n", {}),
        ("def f(x):\n    m = nn.Linear(3, 3).eval().cuda()\n    here()\n", {"m": False}),
        ("def f(m):\n    here()\ndef g(n):\n    n.eval()\n    f(n)\n", {"m": False}),
        ("def f(m):\n    here()\ndef g(n):\n    n.eval()\n    f(n)\n    n.train()\n    f(n)\n", {}),
        ("def f(m):\n    m.eval()\n    train_one_epoch(m)\n    here()\n", {"m": True}),
    ],
)
def test_modules_are_in_the_mode_that_was_set_last(text: str, modes: dict[str, bool]) -> None:
    program = program_of(text)
    found = {path: mode for path, mode in program.training_modes(place(program)).items() if "(" not in path}
    assert found == modes


@pytest.mark.parametrize(
    ("text", "effects"),
    [
        ("def f(loss):\n    loss.backward()\n", {Effect.TRAINS, Effect.DIFFERENTIATES}),
        ("def f(x, y):\n    g(x, y)\ndef g(x, y):\n    torch.autograd.grad(x, y)\n", {Effect.DIFFERENTIATES}),
        ("def f(x):\n    x.requires_grad_(False)\n", set()),
        ("def f(x):\n    x.requires_grad = True\n", {Effect.DIFFERENTIATES}),
        (
            "class M(nn.Module):\n    def forward(self, x):\n        return torch.func.grad(h)(x)\n"
            "def f(x):\n    M()(x)\n",
            {Effect.DIFFERENTIATES, Effect.RUNS_MODULE, Effect.RECORDS},
        ),
        ("def f(x):\n    with torch.no_grad():\n        nn.Linear(3, 3)(x)\n", {Effect.RUNS_MODULE}),
        ("def f(x, y):\n    nn.MSELoss()(x, y)\n", set()),
    ],
)
def test_effects_are_those_of_all_that_is_called(text: str, effects: set[Effect]) -> None:
    program = program_of(text)
    function = next(each for each in program.of_type(ast.FunctionDef) if each.name == "f")
    assert {each for each in Effect if program.effects(function, each)} - {Effect.UNSEEN} == effects


@pytest.mark.parametrize(
    ("text", "fates"),
    [
        ("def f(x):\n    print(here(x).argmax(1))\n", set()),
        ("def f(x):\n    print(here(x))\n", {Fate.OBSERVED}),
        ("def f(x):\n    print(f'{here(x)}')\n", {Fate.OBSERVED}),
        ("def f(x):\n    print(f'{here(x):.3f}', '%.3f' % here(x), float(here(x)))\n", set()),
        ("def f(x, metric):\n    metric.update(here(x))\n", {Fate.KEPT, Fate.OBSERVED}),
        ("def f(x):\n    torch.save(here(x), 'x')\n", {Fate.OBSERVED}),
        ("def f(x):\n    here(x).cpu().sum().backward()\n", {Fate.DIFFERENTIATED}),
        ("@cached\ndef f(x):\n    return here(x)\nf(1)\n", {Fate.OBSERVED}),
        ("def f(x):\n    y = here(x).detach()\n    y.sum().backward()\n", set()),
        ("def f(x):\n    loss = here(x) + 1\n    loss.mean().backward()\n", {Fate.DIFFERENTIATED}),
        ("def f(self, x):\n    self.last = here(x)\n", {Fate.KEPT}),
        ("def f(outs, x):\n    outs.append(here(x))\n", {Fate.KEPT}),
        ("def f(x):\n    outs = []\n    outs.append(here(x))\n    return torch.cat(outs)\n", {Fate.RETURNED}),
        ("def f(x):\n    return here(x)\ndef g(x):\n    f(x).sum().backward()\n", {Fate.DIFFERENTIATED}),
        ("def f(x):\n    return here(x)\ndef g(x):\n    print(f(x).sum().item())\n", set()),
        ("def f(x):\n    with torch.no_grad():\n        return here(x)\n", set()),
        ("def f(x):\n    d = {}\n    d['a'] = here(x)\n    for v in d.values():\n        v.backward()\n",
         {Fate.DIFFERENTIATED}),
    ],
)  # fmt: skip
def test_a_graph_ends_where_it_is_differentiated_or_may_live_on(text: str, fates: set[Fate]) -> None:
    program = program_of(text)
    assert {each.fate for each in program.graph_uses(place(program))} == fates


def test_files_tell_which_functions_are_called_without_gradients_and_which_differentiate(tmp_path: Path) -> None:
    head = "import torch\nDEVICE = torch.device('cuda')\n"
    evaluation = (
        "def {}(model, loader):\n    model.eval()\n    for x in loader:\n        print({}(x.to(DEVICE)).sum().item())\n"
    )
    files = {
        "metrics": head + evaluation.format("loud", "model") + evaluation.format("quiet", "model"),
        "main": head + "import metrics\n@torch.no_grad()\ndef main(m, loader):\n    metrics.quiet(m, loader)\n",
        "forces": head + "from models import Net, Plain\n"
        "def forces(loader):\n    net = Net()\n" + "\n".join(evaluation.format("", "net").split("\n")[1:])
        + "def plain(loader):\n    net = Plain()\n" + "\n".join(evaluation.format("", "net").split("\n")[1:]),
        "models": head + "class Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.autograd.grad(x.sum(), x)\n"
        "class Plain(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(
            text.replace("model.eval", "net.eval" if name == "forces" else "model.eval")
        )
    settings = Settings(root=tmp_path, cache=False, jobs=1)
    result = check_files(discover([tmp_path], settings), settings)
    found = [
        (Path(file.path).name, each.start.line, [fix.safety.value for fix in each.fixes])
        for file in result.files
        for each in file.diagnostics
        if each.rule == "eval-without-no-grad"
    ]
    assert found == [("forces.py", 12, ["rounding"]), ("metrics.py", 5, ["behaviour"])]
