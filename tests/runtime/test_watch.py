"""One eager run and one rehearsal show what a graph would not repeat."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from perflint.runtime import records as records_module
from perflint.runtime.chunks import uses_parameter
from perflint.runtime.records import CannotCapture, Facts, Records, Rehearsal, Unsettled, explain, observe
from perflint.runtime.replay import _keep_profilers, distinct, flatten, settle, twin
from perflint.runtime.scope import Scope
from perflint.runtime.training import bytes_to_sum, leaves_of, stand_ins
from perflint.runtime.walk import HOST_VALUES, Walk


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.last = 0

    def assigns(self, x: Tensor) -> Tensor:
        self.last += 1
        return x

    def trains(self, x: Tensor) -> Tensor:
        self.linear(x).sum().backward()
        return x

    def pure(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


def draws(x: Tensor) -> Tensor:
    return x * random.random()


def draws_tensors(x: Tensor) -> Tensor:
    return x * torch.rand(())


def watched(function: Callable[..., Any], *args: Any) -> tuple[Any, Facts]:
    scope = Scope(function)

    def walk() -> Walk:
        found = Walk(scope, function, *flatten((args, {})))
        found.state += [p for module in found.modules for p in module.parameters(recurse=False)]
        found.inputs += [leaf for leaf in flatten((args, {}))[1] if isinstance(leaf, Tensor)]
        return found

    while scope.learn([*(w := walk()).modules, *w.objects]):
        pass
    return observe(walk(), walk, lambda: function(*args))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (draws, "random numbers on the host"),
        (draws_tensors, "random numbers on the host"),
        (Model().assigns, "assigns"),
        (Model().trains, "gradients"),
    ],
    ids=["random", "torch.rand", "attribute", "backward"],
)
def test_a_run_with_effects_beside_its_result_is_refused_with_its_result(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(CannotCapture, match=reason) as caught:
        watched(function, torch.ones(1, 2))
    assert caught.value.args[1].shape == (1, 2)


def test_a_run_tells_what_it_wrote() -> None:
    def writes(x: Tensor, y: Tensor) -> Tensor:
        y.add_(x)
        return x + y

    result, facts = watched(writes, torch.ones(HOST_VALUES + 1), torch.zeros(HOST_VALUES + 1))
    assert facts.written_inputs == (1,)
    assert torch.equal(result, torch.full((HOST_VALUES + 1,), 2.0))
    assert watched(Model().pure, torch.ones(1, 2))[1] == Facts((), ())


def test_a_written_argument_that_shares_memory_is_refused() -> None:
    x = torch.zeros(4)
    with pytest.raises(CannotCapture, match="shares memory"):
        watched(lambda a, b: a.add_(b), x[:2], x[2:])


def test_a_rehearsal_refuses_copies_to_and_between_devices() -> None:
    with FakeTensorMode(), pytest.raises(CannotCapture, match="to another device"), Rehearsal():
        torch.empty(2, device="cuda:0").to("cuda:1")
    with FakeTensorMode(), pytest.raises(CannotCapture, match="from host to device"), Rehearsal():
        torch.empty(2, device="cuda:0").cpu()
    with FakeTensorMode(), Rehearsal():
        torch.empty(2, device="cuda:0").double().to("cuda:0")


def _clipped() -> Callable[[], object]:
    weight = nn.Parameter(torch.ones(2, device="cuda"))
    weight.grad = torch.ones(2, device="cuda")
    return partial(nn.utils.clip_grad_norm_, [weight], 1.0, error_if_nonfinite=True)


def _averaged() -> Callable[[], object]:
    average = torch.optim.swa_utils.AveragedModel(nn.Identity(), torch.device("cuda"))
    return partial(average.update_parameters, average.module)


@pytest.mark.parametrize("make", [_clipped, _averaged])
def test_a_rehearsal_refuses_what_torch_reads_on_the_host(make: Callable[[], Callable[[], object]]) -> None:
    with FakeTensorMode():
        run = make()
        with pytest.raises(CannotCapture, match="reads a value back"), Rehearsal():
            run()


def test_a_rehearsal_leaves_work_on_the_host_alone() -> None:
    with Rehearsal() as rehearsal:
        assert torch.arange(3)[torch.tensor([True, False, True])].sum().item() == 2
    assert rehearsal.refusal is None


def test_reasons_name_the_users_line() -> None:
    def program() -> None:
        torch.ones(2) @ torch.ones(3)

    try:
        program()
    except RuntimeError as error:
        assert explain(error).startswith("test_watch.py:")
        assert "RuntimeError: " in explain(error)


def test_a_twin_has_the_same_layout_in_memory_of_its_own() -> None:
    for tensor in (torch.ones(3, 4).t(), torch.ones(4)[1:], torch.ones(1, 3).expand(5, 3), torch.ones(0, 2)):
        other = twin(tensor)
        assert other.shape == tensor.shape and other.stride() == tensor.stride()
        assert other.data_ptr() % 16 == tensor.data_ptr() % 16
        distinct(other).copy_(distinct(tensor))
        assert torch.equal(other, tensor)
    with pytest.raises(CannotCapture, match="overlap"):
        distinct(torch.ones(5).as_strided((3, 3), (1, 1)))


def test_only_a_first_call_may_leave_things_changed() -> None:
    records = Records("decode")
    records.doubt("training", Unsettled("it assigns"))
    records.doubt("evaluation", Unsettled("it assigns"))
    assert not records.refused
    with pytest.warns(RuntimeWarning, match="decode stays eager: it assigns"):
        records.doubt("training", Unsettled("it assigns"))
    assert list(records.refused) == ["training"]


def test_results_that_may_hide_tensors_are_refused() -> None:
    static = torch.ones(2)
    assert settle((static, {"n": 3}), [static], {}).result([torch.zeros(2)], [])[1] == {"n": 3}
    for value, reason in ((object(), "returns a object"), (torch.ones(2), "on the host")):
        with pytest.raises(CannotCapture, match=reason):
            settle(value, [static], {})


def test_stand_ins_share_memory_and_are_taken_out_again() -> None:
    lstm = nn.LSTM(2, 2)
    model = nn.ModuleList([lstm, nn.Linear(2, 2)])
    before = dict(model.named_parameters())
    with stand_ins([model, lstm, model[1]], []) as pairs:
        assert len(pairs) == len(before)
        assert all(alias.data_ptr() == parameter.data_ptr() for alias, parameter in pairs)
        output = lstm(torch.ones(1, 2))[0]
        assert {id(leaf) for leaf in leaves_of([output])} <= {id(alias) for alias, _ in pairs}
        assert len(leaves_of([output])) == 4
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert {id(weight) for weight in lstm._flat_weights} == {id(p) for p in lstm.parameters()}


def test_the_parts_of_a_gradient_count_as_often_as_they_are_summed() -> None:
    linear, unused = nn.Linear(2, 2), nn.Linear(9, 9)
    x = linear(linear(linear(torch.ones(2))))
    assert bytes_to_sum({"x": x, "rest": [unused.weight.detach(), 3]}) == 3 * (4 + 2) * 4


def test_steps_that_ignore_their_number_are_told_from_those_that_use_it() -> None:
    def ignores(t: int, x: int) -> int:
        return x

    def uses(t: int, x: int) -> int:
        return x + t

    def nested(t: int, x: int) -> int:
        return sum(t for _ in range(x))

    assert [uses_parameter(step.__code__, 0) for step in (ignores, uses, nested)] == [False, True, True]


class Held:
    def __init__(self, nbytes: int) -> None:
        self.bytes = nbytes


def test_the_least_recently_used_captures_are_let_go_by_number_and_by_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records_module, "_MOST_GRAPHS", 2)
    monkeypatch.setattr(records_module, "_most_bytes", lambda: 100)
    records = Records("f")
    facts = Facts((), ())
    for key in "abc":
        records.add(key, facts, [])
        record = records.find(key)
        assert record is not None
        assert records.keep(record, Held(30)) is None
    assert len(records.captures()) == 2
    first = records.find("b")
    assert first is not None and first.capture is not None
    records.add("d", facts, [])
    large = records.find("d")
    assert large is not None
    assert records.keep(large, Held(80)) is None
    assert [capture.bytes for capture in records.captures()] == [80]
    assert "more than" in str(records.keep(large, Held(101)))


def test_calls_that_are_never_the_same_are_given_up() -> None:
    records = Records("f")
    kept = [records.add(number, Facts((), ()), []) for number in range(100)]
    assert kept[0] and not kept[-1]
    assert len(records._records) < 100


def test_a_record_goes_with_the_objects_in_its_key() -> None:
    records = Records("f")
    model = nn.Linear(2, 2)
    records.add("key", Facts((), ()), [model])
    assert records.find("key") is not None
    del model
    assert records.find("key") is None


def test_each_reason_is_told_once() -> None:
    records = Records("decode")
    with pytest.warns(RuntimeWarning, match="decode stays eager: too big") as caught:
        records.refuse("train", "too big")
        records.refuse("eval", "too big")
    assert len(caught) == 1


@pytest.mark.parametrize(("version", "kept"), [("12.4", "0"), ("12.6", None), (None, None)])
def test_profilers_keep_cupti_where_it_can_not_be_loaded_again(
    version: str | None, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(torch.version, "cuda", version)
    _keep_profilers()
    assert os.environ.get("TEARDOWN_CUPTI") == kept


def test_a_rehearsal_does_not_import_the_compiler() -> None:
    program = (
        "import sys, torch\n"
        "from perflint.runtime.records import Rehearsal\n"
        "with Rehearsal():\n"
        "    torch.ones(2) + 1\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n", "the first capture would wait for it for seconds"
