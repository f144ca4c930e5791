"""Without a device, captured functions are the functions that they wrap."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from perflint.runtime import records
from perflint.runtime.graphs import cuda_graph, graphed_loop


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    records.has_cuda.cache_clear()


@cuda_graph
def decode(x: Tensor, steps: int = 3, *, scale: float = 1.0) -> Tensor:
    """Double it, again and again."""
    for _ in range(steps):
        x = x * 2 * scale
    return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    @cuda_graph
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]

    @cuda_graph
    def twice(self, x: Tensor) -> Tensor:
        return self.linear(self.linear(x))  # type: ignore[no-any-return]

    @staticmethod
    @cuda_graph
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y


def test_a_call_goes_through_with_its_arguments() -> None:
    assert torch.equal(decode(torch.ones(2)), torch.full((2,), 8.0))
    assert torch.equal(decode(torch.ones(2), 1, scale=3.0), torch.full((2,), 6.0))
    assert decode.graphs == 0 and decode.eager_because == ()


def test_name_signature_and_documentation_stay() -> None:
    assert decode.__name__ == "decode"  # type: ignore[attr-defined]
    assert decode.__doc__ == "Double it, again and again."
    assert str(inspect.signature(decode)) == "(x: 'Tensor', steps: 'int' = 3, *, scale: 'float' = 1.0) -> 'Tensor'"
    assert decode.__wrapped__(torch.ones(1), 1).item() == 2


def test_methods_are_methods() -> None:
    model = Decoder()
    x = torch.ones(2, 3)
    assert torch.equal(model(x), model.linear(x))
    assert torch.equal(model.twice(x), model.linear(model.linear(x)))
    assert torch.equal(Decoder.twice(model, x), model.twice(x))
    assert torch.equal(model.add(x, x), 2 * x)


def test_gradients_flow_through() -> None:
    model = Decoder()
    model(torch.ones(2, 3)).sum().backward()
    assert model.linear.weight.grad is not None


def test_functions_methods_and_models_are_pickled_and_copied() -> None:
    assert pickle.loads(pickle.dumps(decode)) is decode
    assert copy.deepcopy(decode) is decode
    model = Decoder()
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(other(torch.ones(1, 3)), model(torch.ones(1, 3)))
    bound = pickle.loads(pickle.dumps(model.twice))
    assert torch.equal(bound(torch.ones(1, 3)), model.twice(torch.ones(1, 3)))


def test_a_module_can_be_wrapped_as_a_whole() -> None:
    linear = nn.Linear(3, 3)
    assert torch.equal(cuda_graph(linear)(torch.ones(1, 3)), linear(torch.ones(1, 3)))


def test_what_the_function_raises_is_raised() -> None:
    @cuda_graph
    def broken(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken(torch.ones(1))


def test_generators_and_coroutines_are_refused_at_once() -> None:
    def steps() -> Iterator[int]:
        yield 1

    async def later() -> None: ...

    for function in (steps, later):
        with pytest.raises(TypeError, match="generators or coroutines"):
            cuda_graph(function)
    with pytest.raises(TypeError, match="callable"):
        cuda_graph(3)  # type: ignore[arg-type]


def test_threads_may_call_one_function() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        results = [decode(torch.full((2,), float(number)), 2)[0] for _ in range(100)]
        wrong.extend(number for result in results if result != 4 * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loop_runs_to_its_last_step() -> None:
    state, outputs = graphed_loop(lambda t, x: (x + t, {"sum": x * 2}), torch.zeros(2), 4)
    assert torch.equal(state, torch.full((2,), 6.0))
    assert torch.equal(outputs["sum"], torch.tensor([0.0, 0.0, 2.0, 6.0]).unsqueeze(1).expand(4, 2))


def test_a_loop_ends_behind_the_step_at_which_the_test_holds() -> None:
    def step(t: int, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x

    state, outputs = graphed_loop(step, torch.zeros(2), 10, until=lambda x: (x == 3).all(), dim=-1, chunk=4)
    assert torch.equal(state, torch.full((2,), 4.0))
    assert outputs.shape == (2, 4)


def test_a_loop_gives_its_outputs_alone_where_no_state_is_asked_for() -> None:
    outputs = graphed_loop(lambda t, x: (x + t, x), torch.zeros(2), 3, last_state=False)
    assert torch.equal(outputs[:, 0], torch.tensor([0.0, 0.0, 1.0]))


def test_a_loop_needs_steps_and_their_two_results() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        graphed_loop(lambda t, x: (x, x), torch.zeros(1), 0)
    with pytest.raises(TypeError, match="must return"):
        graphed_loop(lambda t, x: x, torch.zeros(1), 2)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="must be tensors"):
        graphed_loop(lambda t, x: (x, "text"), torch.zeros(1), 2)


def run_python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(p) for p in path]!r}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_importing_starts_no_device() -> None:
    result = run_python("import torch, perflint.runtime.graphs; assert not torch.cuda.is_initialized()")
    assert result.returncode == 0, result.stderr


def test_without_torch_the_import_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    result = run_python("import perflint.runtime.graphs", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "ImportError: perflint.runtime.graphs needs PyTorch: pip install torch"
