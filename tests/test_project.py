"""Calls across files: hot code of one file makes functions of another hot, however they are imported."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from perflint.analysis.links import HotCall, Links, Summary
from perflint.analysis.program import Program
from perflint.analysis.values.linking import links_of
from perflint.cli.commands import cli
from perflint.engine.results import RunResult
from perflint.project import run
from perflint.project.files import discover, in_project
from perflint.project.patch import patch_files
from perflint.project.run import Checked, Checker, Linker, Task, check_files
from perflint.project.settings import Settings
from perflint.project.ties import contexts_of
from perflint.syntax.source import Safety

METRICS = """\
import torch


def accuracy(output, target):
    hits = output.argmax(dim=1).eq(target)
    return hits.float().mean().item()


class Base:
    def run(self, loader):
        for x, y in loader:
            self.step(x.cuda(), y)

    def step(self, x, y):
        raise NotImplementedError
"""
BETWEEN = """\
import torch
from metrics import accuracy


def measure(output, target):
    return accuracy(output, target)
"""
SUBCLASS = """\
import torch
from metrics import Base


class Sub(Base):
    def step(self, x, y):
        return x.sum().item()
"""
TRAIN = """\
import torch
{import_}


def train(model, loader, optimizer):
    for x, y in loader:
        output = model(x.cuda())
        loss = output.sum()
        loss.backward()
        optimizer.step()
        {call}
"""


def settings(root: Path, rule: str = "item-in-loop") -> Settings:
    return Settings(root=root, cache=True, jobs=1, select=(rule,))


def check(root: Path, rule: str = "item-in-loop") -> RunResult:
    """The findings in a folder: those in each of its files, too, if that alone is named."""
    whole = check_files(discover([root], settings(root, rule)), settings(root, rule))
    for file in whole.files:
        alone = in_project(discover([Path(file.path)], settings(root, rule)), root, settings(root, rule))
        (same,) = check_files(alone, settings(root, rule)).files
        places = [[(each.start, each.end, each.kind, each.blocked) for each in it.diagnostics] for it in (file, same)]
        assert places[0] == places[1], file.path
    return whole


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def lines(result: RunResult) -> list[tuple[str, int]]:
    return [(Path(each.path).name, each.start.line) for each in result.diagnostics]


@pytest.mark.parametrize(
    ("import_", "call"),
    [
        ("from metrics import accuracy", "accuracy(output, y)"),
        ("import metrics", "metrics.accuracy(output, y)"),
        ("import metrics as m", "m.accuracy(output, y)"),
        ("from metrics import *", "accuracy(output, y)"),
        ("from metrics import accuracy as top", "top(output, target=y)"),
        ("from .metrics import accuracy", "accuracy(output, y)"),
    ],
)
def test_a_function_is_hot_when_hot_code_of_another_file_calls_it(tmp_path: Path, import_: str, call: str) -> None:
    write(tmp_path, metrics=METRICS, train=TRAIN.format(import_=import_, call=call))
    assert lines(check(tmp_path)) == [("metrics.py", 6)]
    assert lines(check(tmp_path)) == [("metrics.py", 6)]  # from the cache


def test_a_constructor_is_hot_when_hot_code_of_another_file_makes_objects(tmp_path: Path) -> None:
    meter = (
        "import torch\n\n\nclass Meter:\n    def __init__(self, output):\n        self.value = output.sum().item()\n"
    )
    write(tmp_path, meter=meter, train=TRAIN.format(import_="from meter import Meter", call="Meter(output)"))
    assert lines(check(tmp_path)) == [("meter.py", 6)]


@pytest.mark.parametrize("command", [["check", "metrics.py"], ["fix", "metrics.py"], ["check", "-"]])
def test_one_file_is_checked_with_the_project_around_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    write(
        tmp_path,
        metrics=METRICS,
        train=TRAIN.format(import_="from metrics import accuracy", call="accuracy(output, y)"),
    )
    monkeypatch.chdir(tmp_path)
    stdin = ["--stdin-filename", "metrics.py"] if "-" in command else []
    typed = [*command, *stdin, "--select", "item-in-loop", "--no-cache"]
    result = CliRunner().invoke(cli, typed, input=METRICS if stdin else None)
    assert "train.py" in result.output if command[0] == "check" else "metrics.py" in result.output, result.output


def test_who_names_a_function_without_calling_it_is_not_followed_to_its_own_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming = "import torch\nfrom metrics import accuracy\n\n\ndef step(x):\n    return {}\n"
    using = "import torch\nfrom {0} import step\n\n\ndef use(x):\n    return step(x)\n"
    texts = {"names": naming.format("x"), "calls": naming.format("accuracy(x, x)")}
    write(tmp_path, metrics=METRICS, by_names=using.format("names"), by_calls=using.format("calls"), **texts)
    linked: list[str] = []
    link = Linker.__call__

    def linking(linker: Linker, task: Task) -> Checked:
        linked.extend([] if linker.in_outline else [Path(task.path).stem])
        return link(linker, task)

    monkeypatch.setattr(Linker, "__call__", linking)
    found = discover([tmp_path / "metrics.py"], settings(tmp_path))
    check_files(in_project(found, tmp_path, settings(tmp_path)), settings(tmp_path))
    assert sorted(linked) == ["by_calls", "calls", "names"]


def test_a_message_names_the_loop_that_makes_it_hot_also_through_files_between(tmp_path: Path) -> None:
    train = TRAIN.format(import_="from between import measure", call="measure(output, y)")
    write(tmp_path, metrics=METRICS, between=BETWEEN, train=train)
    line = 1 + train.splitlines().index("    for x, y in loader:")
    for _ in ("checked", "from the cache"):
        (found,) = check(tmp_path).diagnostics
        assert found.message.endswith(f" (loop in line {line} of {tmp_path / 'train.py'})")


def test_a_class_is_a_module_if_a_base_in_another_file_is_one(tmp_path: Path) -> None:
    layer = "import torch\nfrom .bases import {0}\n\n\nclass Layer({0}):\n    def forward(self, x):\n"
    layer += "        return torch.relu(x).sum().item()\n"
    bases = "import torch\n\n\nclass Base(torch.nn.Module):\n    pass\n\n\nclass Transform:\n    pass\n"
    bases += "class Between(Base):\n    pass\n"
    texts = {name.lower(): layer.format(name) for name in ("Between", "Transform", "Missing")}
    write(tmp_path, __init__="from .bases import Base\n", bases=bases, **texts)
    assert lines(check(tmp_path)) == [("between.py", 7)]


def test_a_function_that_cold_code_calls_stays_cold(tmp_path: Path) -> None:
    call = "pass\n    accuracy(output, y)"
    write(tmp_path, metrics=METRICS, train=TRAIN.format(import_="from metrics import accuracy", call=call))
    assert lines(check(tmp_path)) == []


def test_another_function_of_the_same_name_stays_cold(tmp_path: Path) -> None:
    write(
        tmp_path,
        metrics=METRICS,
        other=METRICS,
        train=TRAIN.format(import_="import metrics", call="metrics.accuracy(output, y)"),
    )
    assert lines(check(tmp_path)) == [("metrics.py", 6)]


def test_calls_are_followed_through_files_between(tmp_path: Path) -> None:
    write(
        tmp_path,
        metrics=METRICS,
        between=BETWEEN,
        train=TRAIN.format(import_="import between", call="between.measure(output, y)"),
    )
    assert lines(check(tmp_path)) == [("metrics.py", 6)]


@pytest.mark.parametrize("handing", ["from .metrics import accuracy", "from .metrics import *"])
@pytest.mark.parametrize("import_", ["from scores import accuracy", "from scores import *", "import scores"])
def test_calls_are_followed_through_packages_that_hand_functions_on(tmp_path: Path, handing: str, import_: str) -> None:
    call = "scores.accuracy(output, y)" if import_ == "import scores" else "accuracy(output, y)"
    train = TRAIN.format(import_=import_, call=call)
    write(tmp_path, scores__metrics=METRICS, train=train)
    (tmp_path / "scores" / "__init__.py").write_text(handing)
    assert lines(check(tmp_path)) == [("metrics.py", 6)]


def test_a_method_that_a_hot_loop_of_the_base_calls_is_hot_in_a_subclass_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, metrics=METRICS, sub=SUBCLASS)
    assert lines(check(tmp_path)) == [("sub.py", 7)]


def test_what_is_imported_by_a_star_comes_from_the_module_that_defines_it(tmp_path: Path) -> None:
    averages = "import torch\n\ndef mix(main, target):\n    for p, t in zip(main.parameters(), target.parameters()):\n"
    (tmp_path / "averages.py").write_text(f"{averages}        t.data.copy_(0.1 * p.data + 0.9 * t.data)\n")
    (tmp_path / "networks.py").write_text("import torch\n\ndevice = torch.device('cuda')\n")
    imports = "import torch\nfrom averages import *\nfrom networks import *\n\n"
    steps = "def train(net, target, loader, optimizer):\n    for batch in loader:\n        optimizer.zero_grad()\n"
    steps += "        net(batch.to(device)).sum().backward()\n        optimizer.step()\n        mix(net, target)\n"
    (tmp_path / "train.py").write_text(imports + steps)
    assert lines(check(tmp_path, "param-loop")) == [("averages.py", 4)]


def test_a_base_class_may_come_from_a_star_import(tmp_path: Path) -> None:
    write(tmp_path, metrics=METRICS, sub=SUBCLASS.replace("import Base", "import *"))
    assert lines(check(tmp_path)) == [("sub.py", 7)]


def test_a_file_that_never_names_torch_is_hot_where_it_is_given_tensors(tmp_path: Path) -> None:
    prune = "def prune(scores, limit):\n    while {test}:\n        scores = scores / 2\n    return scores\n"
    train = TRAIN.format(import_="from pruning import prune", call="prune(x.cuda().softmax(-1), 0.5)")
    alone = Settings(root=tmp_path, cache=False, jobs=1, select=("sync",))
    for test, expected in [("scores.max() > limit", [("pruning.py", 2)]), ("limit > 2", [])]:
        write(tmp_path, pruning=prune.format(test=test), train=train)
        assert lines(check_files(discover([tmp_path], alone), alone)) == expected


def test_what_trains_on_data_is_no_module_and_its_methods_are_hot(tmp_path: Path) -> None:
    engine = """
        class engine:
            def train(self, x, y):
                loss = self.criterion(self.model(x), y)
                loss.backward()
                return loss.item()
    """
    train = """
        import torch
        from engines import engine
        trainer = engine(torch.eye(3).cuda())
        for x, y in shuffled():
            trainer.train(x.cuda(), y.cuda())
        trainer.eval(x.cuda())
    """
    write(tmp_path, engines=textwrap.dedent(engine), train=textwrap.dedent(train))
    assert lines(check(tmp_path)) == [("engines.py", 6)]


def test_a_change_in_one_file_is_seen_in_another_whatever_the_cache_holds(tmp_path: Path) -> None:
    hot = TRAIN.format(import_="from metrics import accuracy", call="accuracy(output, y)")
    write(tmp_path, metrics=METRICS, train=hot)
    assert lines(check(tmp_path)) == [("metrics.py", 6)]
    write(tmp_path, train=hot.replace("accuracy(output, y)", "pass"))
    assert lines(check(tmp_path)) == []


def test_calls_of_a_file_that_changes_during_the_run_are_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = TRAIN.format(import_="from metrics import accuracy", call="accuracy(output, y)")
    cold = hot.replace("accuracy(output, y)", "pass")
    write(tmp_path, metrics=METRICS, train=cold)
    with monkeypatch.context() as patch:
        look = run._look

        def looking(checker: Checker, task: Task) -> run._Seen:
            seen = look(checker, task)
            write(tmp_path, train=hot)
            return seen

        patch.setattr(run, "_look", looking)
        assert lines(check(tmp_path)) == [("metrics.py", 6)]
    write(tmp_path, train=cold)
    assert lines(check(tmp_path)) == []


def test_a_fix_sees_what_the_check_sees(tmp_path: Path) -> None:
    write(tmp_path, metrics=METRICS, train=TRAIN.format(import_="import metrics", call="metrics.accuracy(output, y)"))
    patches = patch_files(discover([tmp_path], settings(tmp_path)), settings(tmp_path))
    assert [(Path(patch.path).name, len(patch.remaining)) for patch in patches] == [("metrics.py", 1), ("train.py", 0)]


def check_alone(folder: Path, module: str) -> list[tuple[str, int]]:
    write(folder, module=module)
    alone = Settings(root=folder, cache=False, jobs=1)
    return lines(check_files(discover([folder], alone), alone))


def test_an_ignore_for_what_only_other_files_make_hot_is_not_called_unused(tmp_path: Path) -> None:
    ignored = METRICS.replace(".item()\n", ".item()  # perflint: ignore[item-in-loop] once in a while\n")
    assert check_alone(tmp_path, ignored) == []


@pytest.mark.parametrize(
    "function",
    [
        "def log(*, loss):\n    return loss.item()  # perflint: ignore[item-in-loop]\n",
        "def log(losses):\n    return losses['a'].item()  # perflint: ignore[item-in-loop]\n",
        "class Meter:\n    def add(self, loss):\n        return loss.item()  # perflint: ignore[item-in-loop]\n",
        "def log(x):\n    loss = score(x)\n    return loss.item()  # perflint: ignore[item-in-loop]\n",
    ],
)
def test_an_ignore_is_not_called_unused_whatever_other_files_would_have_to_give(tmp_path: Path, function: str) -> None:
    assert check_alone(tmp_path, f"import torch\nfrom metrics import score\n\n\n{function}") == []


@pytest.mark.parametrize(
    "comment", ["ignore[item-in-loop]", "ignore", "ignore[]", "ignore[item-in-lop]", "ignore[sync"]
)
@pytest.mark.parametrize("head", ["def f(a):\n    ", "class A:\n    def f(self, a):\n        "])
def test_an_ignore_in_a_function_of_which_no_other_file_can_make_a_finding_is_reported(
    tmp_path: Path, head: str, comment: str
) -> None:
    line = head.count("\n") + 2
    assert check_alone(tmp_path, f"import torch\n{head}return a + 1  # perflint: {comment}\n") == [("module.py", line)]


LOSSES = """\
import torch
from torch import nn


def on_device(images, labels):
    output = images.cuda() - labels.cuda()
    return output.sum(), output.max(1)[1]


def on_host(images, labels):
    images, labels = images.to("cpu"), labels.to("cpu")
    return torch.cdist(images, labels).sum(), images.max()


def as_numbers(images, labels):
    return (images - labels).sum().item(), 3


class Learner:
    def learn(self, images, labels):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach(), 3

    def judge(self, images, labels):
        return nn.functional.mse_loss(self.net(images), labels), 3


class Student(Learner):
    pass
"""
LOOP = """\
import torch
from losses import Student, as_numbers, on_device, on_host


def run(pairs, model, student=Student()):
    for images, labels in pairs:
        {before}
        loss, rest = {call}
        {behind}
        print(loss.item())
"""
FORWARD = "images = model(images.cuda())"
STEP = "model.zero_grad()"


@pytest.mark.parametrize(
    ("call", "behind", "is_found"),
    [
        ("on_device(images, labels)", STEP, True),
        ("on_host(images, labels)", STEP, False),
        ("as_numbers(images, labels)", STEP, False),
        ("student.learn(images, labels)", "pass", True),
        ("student.judge(images, labels)", "pass", False),
    ],
    ids=["tensors on the device", "tensors on the host", "numbers", "a step of training", "no step"],
)
def test_what_a_function_of_another_file_gives_and_whether_it_trains_is_known(
    tmp_path: Path, call: str, behind: str, is_found: bool
) -> None:
    write(
        tmp_path,
        losses=LOSSES,
        loop=LOOP.format(before=FORWARD if behind == STEP else "pass", call=call, behind=behind),
    )
    expected = [("loop.py", 10)] if is_found else []
    assert [place for place in lines(check(tmp_path)) if place[0] == "loop.py"] == expected
    assert [place for place in lines(check(tmp_path)) if place[0] == "loop.py"] == expected  # from the cache


def test_a_change_of_what_a_function_gives_is_seen_where_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, losses=LOSSES, loop=LOOP.format(before=FORWARD, call="on_device(images, labels)", behind=STEP))
    assert ("loop.py", 10) in lines(check(tmp_path))
    write(tmp_path, losses=LOSSES.replace("return output.sum(), output", "return output.tolist(), output"))
    assert ("loop.py", 10) not in lines(check(tmp_path))


def test_methods_of_one_name_that_give_different_things_tell_nothing(tmp_path: Path) -> None:
    method = "import torch\n\n\nclass {}:\n    def loss(self, x):\n        return x.float().mean(){}\n"
    train = TRAIN.format(import_="", call="print(learner.loss(output).item())").replace("(model,", "(learner, model,")
    write(tmp_path, first=method.format("First", ".item()"), train=train)
    assert [place for place in lines(check(tmp_path)) if place[0] == "train.py"] == []
    write(tmp_path, second=method.format("Second", ""))
    assert [place for place in lines(check(tmp_path)) if place[0] == "train.py"] == [("train.py", 11)]


def test_only_files_that_ask_are_told(tmp_path: Path) -> None:
    write(tmp_path, losses=LOSSES, loop=LOOP.format(before=FORWARD, call="on_device(images, labels)", behind=STEP))
    write(tmp_path, idle="from losses import on_device\n\n\ndef run(x):\n    return on_device(x, x)\n")
    told = {Path(path).name: context for path, context in check(tmp_path).contexts.items()}
    assert [summary.target for summary in told["loop.py"].summaries] == ["losses.on_device"]
    assert "idle.py" not in told


def test_a_call_whose_result_an_environment_needs_makes_nothing_hot(tmp_path: Path) -> None:
    policy = "import torch\n\n\ndef act(net, state):\n    return net(state.cuda()).argmax().item()\n"
    train = TRAIN.format(import_="from policy import act", call="{}")
    write(tmp_path, policy=policy, train=train.format("action = act(model, x)"))
    assert lines(check(tmp_path)) == [("policy.py", 5)]
    write(tmp_path, train=train.format("action = act(model, x)\n        x = env.step(action)"))
    assert lines(check(tmp_path)) == []


def test_what_lists_hold_is_known_where_they_are_handed_to(tmp_path: Path) -> None:
    boxes = "import torch\n\n\ndef best(outputs):\n    return [output.max(1)[1].item() for output in outputs]\n"
    train = TRAIN.format(import_="from boxes import best", call="best([part{} for part in output])")
    write(tmp_path, boxes=boxes, train=train.format(""))
    assert lines(check(tmp_path)) == [("boxes.py", 5)]
    write(tmp_path, train=train.format(".cpu()"))
    assert lines(check(tmp_path)) == []


def test_a_script_that_never_leaves_the_host_hears_of_no_device(tmp_path: Path) -> None:
    net = (
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x[:, 0].exp(), 3\n"
    )
    script = """\
import torch
from net import Net
from torch.utils.data import DataLoader

net = Net(){}
for x in DataLoader([], num_workers=2):
    y, _ = net(x)
    print(y.sum().item())
"""
    write(tmp_path, net=net, script=script.format(""))
    assert lines(check(tmp_path)) == []
    write(tmp_path, script=script.format(".cuda()"))
    assert lines(check(tmp_path)) == [("script.py", 8)]


def test_imports_are_resolved_from_the_nearest_folder_above() -> None:
    call = HotCall("utils.f", 1)
    utils = Links(functions=("f",), summaries=(Summary("f"),))
    links = {
        "a/train.py": Links(calls=(call,)),
        "a/utils.py": utils,
        "utils.py": utils,
        "b/utils.py": utils,
    }
    assert list(contexts_of(links)) == ["a/utils.py"]
    del links["a/utils.py"]
    assert list(contexts_of(links)) == ["utils.py"]
    del links["utils.py"]
    assert list(contexts_of(links)) == ["b/utils.py"]  # the only one of that name: the search path may name its folder
    links["c/utils.py"] = utils
    assert contexts_of(links) == {}


ENDS = """
import torch


def ends(x):
    return torch.ones(3, device="cuda")


def deep(x):
    return torch.zeros(3, device="cuda")
"""
MIDDLE = """
from ends import deep


def through(x):
    return deep(x)


def train(loader, model, optimizer):
    for x in loader:
        y = deep(x)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        print(y.item())
"""
NEAR_AND_FAR = """
from middle import through
from ends import ends


def train(loader, model, optimizer):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        near, far = ends(x), through(x)
        print(near.item())
        print(far.item())
"""


@pytest.mark.parametrize("rounds", [3, 4, 9])
def test_what_was_told_is_not_forgotten_however_often_files_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(run, "_ROUNDS", rounds)
    write(tmp_path, ends=ENDS, middle=MIDDLE, train=NEAR_AND_FAR)
    assert [place for place in lines(check(tmp_path)) if place[0] == "train.py"] == [("train.py", 12), ("train.py", 13)]


NET = "import torch\n\n\nclass Net(torch.nn.Module):\n"
EVALUATION = """\
import torch


def scores(model, loader):
    found = []
    for user, item in loader:
        found.append(model(user, item).topk(3)[1].cpu().numpy())
    return found
"""
EVALUATING = """\
import torch
from evaluation import scores
from net import Net


def main(loader, optimizer):
    model = Net().cuda()
    for epoch in range(9):
        for user, item in loader:
            model(user, item).sum().backward()
            optimizer.step()
        {}
"""


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("model.eval()\n        scores(model, loader)", [("evaluation.py", 6)]),
        ("scores(model, loader)", []),
        ("model.eval()\n        scores(model, loader)\n        model.train()\n        scores(model, loader)", []),
        ("model.eval()\n        with torch.no_grad():\n            scores(model, loader)", []),
    ],
)
def test_a_model_is_in_the_mode_in_which_all_other_files_hand_it_over(
    tmp_path: Path, calls: str, expected: list[tuple[str, int]]
) -> None:
    net = NET + "    def forward(self, user, item):\n        return user @ item\n"
    write(tmp_path, evaluation=EVALUATION, net=net, main=EVALUATING.format(calls))
    assert lines(check(tmp_path, "eval-without-no-grad")) == expected


PREDICTING = """\
import torch


def evaluate(model, users):
    model.eval()
    for user in users:
        print(model.predict(user).argmax().item())
"""


@pytest.mark.parametrize(("decorator", "found"), [("", True), ("@torch.no_grad()\n    ", False)])
def test_a_method_in_another_file_may_switch_gradients_off_itself(tmp_path: Path, decorator: str, found: bool) -> None:
    net = NET + "    def __init__(self):\n        self.layer = torch.nn.Linear(2, 2)\n"
    net += f"\n    {decorator}def predict(self, user):\n        return self.layer(user)\n"
    main = "from net import Net\nfrom predicting import evaluate\n\nevaluate(Net(), [1])\n"
    write(tmp_path, predicting=PREDICTING, net=net, main=main)
    assert bool(lines(check(tmp_path, "eval-without-no-grad"))) is found


SHARED = """\
import torch
from net import Net

model = Net().cuda()


def features(x):
    return model(x).tanh()


def score(loader):
    model.eval()
    for x, y in loader:
        print(features(x.cuda()).argmax(0).tolist())


model.eval()
best = features(torch.zeros(2).cuda()).argmax(0)
"""
LAYER = NET + "    def __init__(self):\n        self.layer = torch.nn.Linear(2, 2)\n        self.parts = {{}}\n\n"
LAYER += "    def forward(self, x):\n        out = self.layer(x)\n        {}\n        return out.tanh()\n"
LEARNING = """\
import torch
{}


def train(loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        {}(x.cuda()).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "called", "expected"),
    [
        ("", "torch.relu", [7, 13]),
        ("from steps import features", "features", [13]),
        ("from steps import *", "features", [13]),
        ("from package import features", "features", [13]),
        ("import steps", "steps.features", [13]),
        ("import steps\nTABLE = {0: steps.features}", "TABLE[0]", [13]),
    ],
)
def test_who_uses_a_function_in_another_file_may_differentiate_what_it_returns(
    tmp_path: Path, imports: str, called: str, expected: list[int]
) -> None:
    write(tmp_path, steps=SHARED, net=LAYER.format("pass"), main=LEARNING.format(imports, called))
    write(tmp_path, package="from steps import features\n")
    assert lines(check(tmp_path, "eval-without-no-grad")) == [("steps.py", line) for line in expected]


@pytest.mark.parametrize(
    ("does", "safety"),
    [
        ("pass", Safety.ROUNDING),
        ("self.parts.update(last=out)", Safety.BEHAVIOUR),
        ("PARTS['out'] = out", Safety.BEHAVIOUR),
        ("out = out * 2 if out.requires_grad else out", Safety.BEHAVIOUR),
        ("x.register_hook(print)", Safety.BEHAVIOUR),
    ],
)
def test_a_module_of_another_file_that_would_notice_makes_a_fix_unsafe(
    tmp_path: Path, does: str, safety: Safety
) -> None:
    write(tmp_path, steps=SHARED, net=f"PARTS = {{}}\n{LAYER.format(does)}", main=LEARNING.format("", "torch.relu"))
    found = check(tmp_path, "eval-without-no-grad").diagnostics
    assert {fix.safety for each in found for fix in each.fixes} == {safety}


LOADERS = """\
from torch.utils.data import DataLoader


def loaders(data):
    return DataLoader(data, shuffle=True, pin_memory={0}), DataLoader(data, pin_memory={0})
"""
WALKING = """\
import torch
from data import loaders


def train(model, train_set):
    for images, labels in train_set:
        model(images.cuda(), labels.cuda()).backward()


def main(model, data):
    train_set, test_set = loaders(data)
    train(model, train_set)
"""


@pytest.mark.parametrize(("pins", "found"), [("True", [7, 7]), ("False", []), ("data.pins", [])])
def test_a_loader_of_another_file_pins_what_it_is_known_to_pin(tmp_path: Path, pins: str, found: list[int]) -> None:
    write(tmp_path, data=LOADERS.format(pins), walking=WALKING)
    assert [line for _, line in lines(check(tmp_path, "blocking-copy"))] == found


def test_a_loader_is_pinned_if_all_that_hand_it_over_pin_it(tmp_path: Path) -> None:
    step = "import torch\n\n\ndef train(model, loader):\n"
    step += "    for images in loader:\n        model(images.cuda()).backward()\n"
    main = "from torch.utils.data import DataLoader\nfrom step import train\n\n\ndef main(model, data):\n"
    pinned, plain = (f"    train(model, DataLoader(data, pin_memory={each}))\n" for each in (True, False))
    write(tmp_path, step=step, main=main + pinned)
    assert lines(check(tmp_path, "blocking-copy")) == [("step.py", 6)]
    write(tmp_path, main=main + pinned + plain)
    assert lines(check(tmp_path, "blocking-copy")) == []


LOGGING = """\
class Log:
    def every(self, batches, count):
        for number, batch in enumerate(batches):
            yield batch
            if number % count == 0:
                print(number)
"""
LOGGED = """\
import torch
from logs import Log
from torch.utils.data import DataLoader


def main(model, data):
    log = Log()
    for images in log.every(DataLoader(data, pin_memory=True), 10):
        model(images.cuda()).backward()
    for images in log.every(DataLoader(data), 10):
        model(images.cuda()).backward()
"""


def test_a_generator_of_another_file_hands_on_the_batches_of_the_loader_that_it_is_given(tmp_path: Path) -> None:
    write(tmp_path, logs=LOGGING, logged=LOGGED)
    assert lines(check(tmp_path, "blocking-copy")) == [("logged.py", 9)]
    write(tmp_path, logs=LOGGING.replace("yield batch", "yield batch + 0"))
    assert lines(check(tmp_path, "blocking-copy")) == []


CLASS = """\
import torch.utils.data


class Collated(torch.utils.data.DataLoader):
    def __init__(self, {parameters}**kwargs):
        super().__init__({given}collate_fn=list, **kwargs)
"""
BUILDING = """\
import torch
from data import Collated


def main(model, train_set):
    loader = Collated(train_set, num_workers=4)
    for epoch in range(9):
        for images in loader:
            model(images.cuda()).sum().backward()
"""


@pytest.mark.parametrize(
    ("parameters", "given", "found"),
    [
        ("dataset, batch_size=1, ", "dataset, batch_size, ", [("main.py", 6)]),
        ("path, ", "read(path), ", []),
        ("dataset, ", "dataset, pin_memory=True, ", []),
    ],
)
def test_a_class_of_another_file_is_a_loader_if_it_hands_on_what_it_is_given(
    tmp_path: Path, parameters: str, given: str, found: list[tuple[str, int]]
) -> None:
    write(tmp_path, data=CLASS.format(parameters=parameters, given=given), main=BUILDING)
    assert lines(check(tmp_path, "loader-restarts-workers")) == found


ACTING = """\
import torch


class Agent:
    def __init__(self):
        self.actor = torch.nn.Linear(4, 2).cuda()

    def select_action(self, state):
        return self.actor(torch.tensor(state).cuda()).detach().cpu().numpy()

    def look(self, state):
        return self.actor(torch.tensor(state).cuda()).detach().cpu().numpy()

    def train(self, states):
        self.actor(states).sum().backward()
"""
PLAYING = """\
import torch
from acting import Agent


def play(env, memory):
    agent, state = Agent(), env.reset()
    for step in range(1000):
        state, reward, done, _ = env.step(agent.select_action(state))
        agent.look(state)
        agent.train(memory.sample(64))
"""


@pytest.mark.parametrize(("rule", "found"), [("dead-graph", [9, 12]), ("sync-in-loop", [12])])
def test_what_an_environment_steps_with_is_read_and_computed_in_every_step(
    tmp_path: Path, rule: str, found: list[int]
) -> None:
    write(tmp_path, acting=ACTING, playing=PLAYING)
    assert [line for name, line in lines(check(tmp_path, rule)) if name == "acting.py"] == found


AGENT = """\
import torch
from torch import nn


class {name}:
    def __init__(self):
        self.net = nn.Linear(4, 4).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def update(self, batch, step):
        loss = self.net(batch.cuda()).square().{reduced}()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
"""
ROUNDS = """\
import torch


def rounds(agent, memory, count):
    for step in range(count):
        agent.update(memory.sample(), step)
"""


def test_an_agent_of_one_of_several_classes_trains_in_the_loop_of_another_file(tmp_path: Path) -> None:
    scripts = "from {0} import {1}\nfrom rounds import rounds\n\n\ndef train(memory):\n    rounds({1}(), memory, 10)\n"
    write(
        tmp_path,
        first=AGENT.format(name="First", reduced="mean"),
        second=AGENT.format(name="Second", reduced="sum"),
        rounds=ROUNDS,
        run_first=scripts.format("first", "First"),
    )
    assert lines(check(tmp_path)) == [("first.py", 15)]
    write(tmp_path, run_second=scripts.format("second", "Second"))
    assert lines(check(tmp_path)) == [("first.py", 15), ("second.py", 15)]


def test_a_loop_of_steps_that_a_subclass_elsewhere_defines_is_one_of_steps(tmp_path: Path) -> None:
    base = (
        "import torch\n\n\nclass Runner:\n    def epoch(self, loader, done):\n        while done < len(loader):\n"
        "            loss = self._step(loader)\n            print(loss.cuda().item())\n            done += 1\n\n"
        "    def _step(self, loader):\n        raise NotImplementedError\n"
    )
    step = (
        "import torch\nfrom base import Runner\n\n\nclass Plain(Runner):\n    def _step(self, loader):\n"
        "        loss = self.net(self.take(loader)).mean()\n        loss.{0}()\n        return loss\n"
    )
    write(tmp_path, base=base, plain=step.format("backward"))
    assert lines(check(tmp_path)) == [("base.py", 8)]
    write(tmp_path, plain=step.format("abs"))
    assert lines(check(tmp_path)) == []


def test_what_another_file_gives_is_known_to_be_a_mask(tmp_path: Path) -> None:
    mining = (
        "import torch\n\n\ndef mine(loss, labels):\n    loss = loss.cuda()\n    return (labels.cuda() > 0) | ({0})\n"
    )
    loss = (
        "import torch\nfrom torch import nn\nfrom mining import mine\n\n\nclass Hard(nn.Module):\n"
        "    def forward(self, losses, labels):\n        chosen = mine(losses, labels)\n"
        "        return losses[chosen].mean()\n"
    )
    write(tmp_path, mining=mining.format("loss > 0.5"), hard=loss)
    assert lines(check(tmp_path, "sync-in-loop")) == [("hard.py", 9)]
    write(tmp_path, mining=mining.replace("(labels.cuda() > 0) | ({0})", "labels.cuda().argmax(1)"))
    assert lines(check(tmp_path, "sync-in-loop")) == []


def test_a_script_trains_by_what_a_subclass_does_of_a_method_that_passes(tmp_path: Path) -> None:
    base = "class Base:\n    def optimize(self):\n        pass\n"
    model = "import torch\nfrom base import Base\n\n\nclass {0}(Base):\n    def optimize(self):\n        {1}\n"
    trains = "self.net(self.data).sum().backward()"
    build = "def build(settings):\n    from model import Model as M\n    return M(settings)\n"
    script = (
        'import torch\nfrom build import build\n\nif __name__ == "__main__":\n    model = build(torch.device("cuda"))\n'
        "    for _ in range(10):\n        model.optimize()\n"
    )
    write(tmp_path, base=base, model=model.format("Model", trains), build=build, script=script)
    assert lines(check(tmp_path, "precision-left")) == [("script.py", 7)]
    write(tmp_path, other=model.format("Other", "self.net(self.data)"))
    assert lines(check(tmp_path, "precision-left")) == []


def test_a_module_with_a_trial_of_its_own_is_not_the_script_that_trains(tmp_path: Path) -> None:
    net = (
        "import torch\n\n\nclass Net:\n    def teach(self, batch):\n        self.net(batch.cuda()).sum().backward()\n"
        '\n\nif __name__ == "__main__":\n    print(Net())\n'
    )
    script = (
        "import torch\nfrom net import Net\n\nnet = Net()\nfor batch in torch.load('data'):\n    net.teach(batch)\n"
    )
    write(tmp_path, net=net, script=script)
    assert lines(check(tmp_path, "precision-left")) == [("script.py", 6)]


def test_a_function_of_another_file_evaluates_in_the_loop_that_calls_it(tmp_path: Path) -> None:
    detect = (
        "import torch\n\n\ndef detect(model, picture):\n    with torch.{0}():\n"
        "        found = model(torch.from_numpy(picture).cuda())\n    return found.cpu()\n"
    )
    script = (
        "import torch\nfrom detect import detect\n\n\ndef main(model, paths, read):\n    for path in paths:\n"
        "        print(detect(model, read(path)))\n"
    )
    write(tmp_path, detect=detect.format("no_grad"), script=script)
    assert lines(check(tmp_path, "sync-in-loop")) == [("detect.py", 7)]
    write(tmp_path, detect=detect.format("enable_grad"))
    assert lines(check(tmp_path, "sync-in-loop")) == []


def test_one_caller_that_knows_where_a_tensor_is_is_enough(tmp_path: Path) -> None:
    settle = (
        "def settle(rows, name):\n    for row in rows:\n        if name == 'first' and row[0] != 0:\n"
        "            row[1] = 0\n"
    )
    script = (
        "import torch\nfrom settle import settle\n\n\ndef main(model, loader):\n    for rows in loader:\n"
        "        rows = rows.{0}()\n        settle(rows, 'first')\n        settle(model.unknown(rows), 'last')\n"
        "        with torch.no_grad():\n            model(rows)\n"
    )
    write(tmp_path, settle=settle, script=script.format("cuda"))
    assert lines(check(tmp_path, "sync-in-loop")) == [("settle.py", 3)]
    write(tmp_path, script=script.format("cpu"))
    assert lines(check(tmp_path, "sync-in-loop")) == []


def test_a_module_of_another_folder_is_found_where_no_other_has_its_name(tmp_path: Path) -> None:
    train = TRAIN.format(import_="from metrics import accuracy", call="accuracy(output, y)")
    write(tmp_path, src__measure__metrics=METRICS, src__bin__train=train)
    assert ("metrics.py", 6) in lines(check(tmp_path))
    write(tmp_path, other__metrics="")
    assert ("metrics.py", 6) not in lines(check(tmp_path))


def test_a_batch_that_another_file_draws_makes_a_loop_one_of_steps(tmp_path: Path) -> None:
    table = (
        "import {0}\n\n\nclass Table:\n    def rows(self, size):\n"
        "        return [{0}.{1} for _ in range(size)]\n\n    def pick(self, size):\n        return self.rows(size)\n"
    )
    script = (
        "import torch\nfrom table import Table\n\n\ndef main(count):\n    table, net = Table(), torch.nn.Linear(1, 1)\n"
        "    net.cuda()\n    for _ in range(9):\n        for _ in range(count):\n"
        "            rows = torch.tensor(table.pick(64)).cuda()\n            loss = net(rows).mean()\n"
        "            loss.backward()\n            print(loss.item())\n"
    )
    write(tmp_path, table=table.format("random", "random()"), script=script)
    assert lines(check(tmp_path)) == [("script.py", 13)]
    write(tmp_path, table=table.format("math", "pi"))  # all rows in each step: an epoch is one
    assert lines(check(tmp_path)) == []


def test_a_module_of_one_of_two_classes_that_move_themselves_acts_as_both_do(tmp_path: Path) -> None:
    policy = (
        "class {0}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = nn.Linear(2, 2)\n\n"
        "    def sample(self, x):\n        return {1}, x\n\n    def to(self, device):\n"
        "        return super().to(device)\n\n\n"
    )
    agent = (
        "import torch\nfrom policies import First, Second\n\n\nclass Agent:\n    def __init__(self, is_first):\n"
        "        if is_first:\n            self.policy = First().to('cuda')\n        else:\n"
        "            self.policy = Second().to('cuda')\n"
        "        self.optimizer = torch.optim.Adam(self.policy.parameters())\n\n    def select_action(self, state):\n"
        "        action, _ = self.policy.sample(torch.tensor(state).cuda())\n"
        "        return action.detach().cpu().numpy()\n"
    )
    first, second = policy.format("First", "self.net(x)"), policy.format("Second", "self.net(x) + 1")
    write(tmp_path, policies=f"import torch\nfrom torch import nn\n\n\n{first}{second}", agent=agent)
    assert ("agent.py", 14) in lines(check(tmp_path, "dead-graph"))
    second = second.replace("    def sample", "    @torch.no_grad()\n    def sample")
    write(tmp_path, policies=f"import torch\nfrom torch import nn\n\n\n{first}{second}")
    assert lines(check(tmp_path, "dead-graph")) == []


def test_a_loader_of_a_class_in_another_file_restarts_the_workers_that_it_is_told_of(tmp_path: Path) -> None:
    data = (
        "from torch.utils.data import DataLoader\n\n\nclass AudioLoader(DataLoader):\n"
        "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
        "        self.collate_fn = list\n"
    )
    script = (
        "import torch\nfrom data import AudioLoader\nfrom solver import Solver\n\n\ndef main(tr, cv, model):\n"
        "    tr_loader = AudioLoader(tr, shuffle=True, num_workers=4)\n"
        "    cv_loader = AudioLoader(cv, num_workers={})\n"
        "    Solver({{'tr': tr_loader, 'cv': cv_loader}}, model.cuda()).train()\n"
    )
    write(tmp_path, data=data, script=script.format(4))
    assert lines(check(tmp_path, "loader-restarts-workers")) == [("script.py", 7), ("script.py", 8)]
    write(tmp_path, script=script.format(0))
    assert lines(check(tmp_path, "loader-restarts-workers")) == [("script.py", 7)]


def test_a_script_without_a_guard_trains_by_a_function_of_another_file(tmp_path: Path) -> None:
    train = (
        "import torch\n\n\ndef train(batches):\n    net = torch.nn.Linear(3, 3).cuda()\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    for batch in batches:\n"
        "        optimizer.zero_grad()\n        net(batch.cuda()).sum().backward()\n        optimizer.step()\n"
    )
    script = "import torch\nfrom training import {0}\n\n{0}(torch.load('data'))\n"
    write(tmp_path, training=train, script=script.format("train"))
    assert ("script.py", 4) in lines(check(tmp_path, "precision-left"))
    write(tmp_path, training=train + "\n\ndef show(batches):\n    print(batches)\n", script=script.format("show"))
    assert ("script.py", 4) not in lines(check(tmp_path, "precision-left"))


def test_code_is_hot_however_many_files_the_calls_lead_through(tmp_path: Path) -> None:
    write(tmp_path, metrics=METRICS, between0=BETWEEN)
    for number in range(1, 9):
        text = BETWEEN.replace("from metrics import accuracy", f"from between{number - 1} import measure as accuracy")
        write(tmp_path, **{f"between{number}": text})
    write(tmp_path, train=TRAIN.format(import_="from between8 import measure", call="measure(output, y)"))
    assert lines(check(tmp_path)) == [("metrics.py", 6)]


def test_a_text_has_the_same_links_each_time() -> None:
    text = "import lib\n\n\ndef f(names):\n    model = lib.Model()\n    setattr(model, names.one, 1)\n"
    programs = [Program(text) for _ in range(2)]
    assert links_of(programs[0]) == links_of(programs[1])


def test_calling_an_object_of_one_of_two_classes_builds_none(tmp_path: Path) -> None:
    pool = (
        "class {0}(torch.nn.Module):\n    def __init__(self, dim, heads):\n        super().__init__()\n"
        "        assert dim % heads == 0\n\n    def forward(self, x):\n        return x.mean(1)\n\n\n"
    )
    model = (
        "import torch\nfrom pools import First, Second\n\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self, first):\n        super().__init__()\n"
        "        if first:\n            self.pool = First(8, heads=2)\n        else:\n"
        "            self.pool = Second(8, heads=2)\n\n    def forward(self, x):\n        return self.pool(x.cuda())\n"
    )
    write(tmp_path, pools="import torch\n\n\n" + pool.format("First") + pool.format("Second"), model=model)
    assert lines(check(tmp_path, "sync-in-loop")) == []


def test_a_module_of_one_of_two_classes_gives_what_one_of_them_is_not_known_to_give(tmp_path: Path) -> None:
    nets = (
        "import torch\nfrom torch import nn\n\n\nclass Attends(nn.Transformer):\n    def forward(self, x):\n"
        "        return self.encoder(x)\n\n\nclass Recurs(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.rnn = nn.LSTM(4, 4)\n\n    def forward(self, x, state=None):\n"
        "        out, state = self.rnn(x, state)\n        return out, state\n"
    )
    train = (
        "import torch\nfrom nets import Attends, Recurs\n\n\ndef train(attends, loader, losses):\n"
        "    model = Attends().cuda() if attends else Recurs().cuda()\n"
        "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    for x in loader:\n"
        "        if attends:\n            out = model(x.cuda())\n        else:\n            out, _ = model(x.cuda())\n"
        "        loss = out.view(-1).sum()\n        loss.backward()\n        optimizer.step()\n"
        "        losses.append(out.mean().item())\n"
    )
    write(tmp_path, nets=nets, train=train)
    assert lines(check(tmp_path)) == [("train.py", 16)]
