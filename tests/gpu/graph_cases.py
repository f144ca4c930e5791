"""The loops that are measured, each in eager mode, captured by perflint, captured by hand and compiled."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perflint.runtime.graphs import cuda_graph, graphed_loop
from tests.gpu.by_hand import capture, capture_until
from tests.gpu.measure import fixed, load
from tests.gpu.programs_graphs.decoders import (
    AttentionDecoder,
    CellLoop,
    LstmDecoder,
    Transformer,
    greedy,
    greedy_until,
)
from tests.gpu.programs_graphs.plain import NormedCell, advantages
from tests.gpu.programs_graphs.scripted import ScriptedGreedy

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STEPS = 128
_PLAIN_NAMES = {AttentionDecoder: "Attention", NormedCell: "NormedCell"}
Run = Callable[[], Any]


PLAIN = Path(__file__).parent / "programs_graphs" / "plain.py"


@functools.cache
def plain() -> ModuleType:
    """What `perflint fix --unsafe` makes of the plain decoders."""
    text = PLAIN.read_text(encoding="utf-8")
    return load(PLAIN, fixed(text))


def fixed_module(name: str, model: nn.Module) -> Any:
    """A fixed module of that name with the parts of `model` itself: where their weights lie takes or gives time."""
    own = getattr(plain(), name)().to(DEVICE).train(model.training)
    for part, module in model.named_children():
        setattr(own, part, module)
    return own


@dataclass(frozen=True)
class Case:
    """One loop: `variants` make what is timed, "eager" first; `floor` is the ratio that perflint must reach."""

    name: str
    floor: float
    variants: dict[str, Callable[[], Run]]


def cases() -> Iterator[Case]:
    """All cases."""
    torch.manual_seed(0)
    model = LstmDecoder().to(DEVICE).eval()
    for batch, floor in ((1, 6.0), (8, 4.5), (32, 4.5), (100, 4.0)):
        yield _greedy(model, batch, floor)
    for batch, floor in ((1, 8.0), (8, 5.5), (32, 6.0), (100, 4.5)):
        yield _until(model, batch, floor, -1)
    yield _until(model, 1, 1.0, int(greedy(model, *_start(1), STEPS)[0, STEPS // 4]), "B=1, ending early")
    yield _training("attention decoder, B=32 S=80 T=60, forward and backward", 3.5, AttentionDecoder(), _pairs())
    yield _training("LSTM cell loop, B=32 T=128, forward and backward", 3.0, CellLoop(), (_rand(32, 128, 512), None))
    yield _training(
        "normed LSTM cell, B=32 T=128, forward and backward", 3.0, NormedCell(), (_rand(32, 128, 512), None)
    )
    yield _transformer(8)
    yield _advantages()


def _rand(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def _start(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(7)
    h, c = (torch.randn(1, batch, 512, device=DEVICE, generator=generator) for _ in range(2))
    return torch.zeros(batch, dtype=torch.long, device=DEVICE), h, c


def _pairs() -> tuple[Tensor, Tensor]:
    return _rand(32, 80, 512), torch.randint(1000, (32, 60), device=DEVICE)


def _no_grad(run: Run) -> Run:
    return torch.no_grad()(run)


def _greedy(model: LstmDecoder, batch: int, floor: float) -> Case:
    inputs = _start(batch)
    variants: dict[str, Callable[[], Run]] = {
        "eager": lambda: _no_grad(lambda: greedy(model, *inputs, STEPS)),
        "perflint": lambda: _bound(cuda_graph(greedy), model, *inputs, STEPS),
        "perflint fix": lambda: _bound(fixed_module("Decoder", model).greedy, *inputs, STEPS),
        "by hand": lambda: _no_grad(capture(lambda t, h, c: greedy(model, t, h, c, STEPS), inputs)),
        "torch.jit.script": lambda: _scripted(model, inputs),
    }
    if batch == 32:
        variants["torch.compile of the step"] = lambda: _compiled_step(model, inputs, "default")
        variants["torch.compile, reduce-overhead"] = lambda: _compiled_step(model, inputs, "reduce-overhead")
    return Case(f"greedy LSTM decode, 128 steps, B={batch} D=512", floor, variants)


def _bound(function: Callable[..., Any], *arguments: Any) -> Run:
    return _no_grad(lambda: function(*arguments))


def _scripted(model: LstmDecoder, inputs: tuple[Tensor, ...]) -> Run:
    scripted = torch.jit.script(ScriptedGreedy(model.embed, model.lstm, model.out))
    return _no_grad(lambda: scripted(*inputs, STEPS))


def _compiled_step(model: LstmDecoder, inputs: tuple[Tensor, Tensor, Tensor], mode: str) -> Run:
    step = torch.compile(model.step, mode=mode)

    def decode(token: Tensor, h: Tensor, c: Tensor) -> Tensor:
        tokens, state = [], (h, c)
        for _ in range(STEPS):
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            logits, (h, c) = step(token, state)
            state = (h.clone(), c.clone())
            token = logits.argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)

    return _bound(decode, *inputs)


def _until(model: LstmDecoder, batch: int, floor: float, end: int, note: str = "") -> Case:
    inputs = _start(batch)

    def in_chunks(token: Tensor, h: Tensor, c: Tensor) -> Tensor:
        def step(_t: int, state: Any) -> tuple[Any, Tensor]:
            token, memory = state
            logits, memory = model.step(token, memory)
            token = logits.argmax(-1)
            return (token, memory), token

        def ended(token: Tensor) -> Tensor:
            return (token == end).all()

        return graphed_loop(step, (token, (h, c)), STEPS, until=ended, dim=1, last_state=False)

    return Case(
        f"the same with a test for the end at each step, {note or f'B={batch}'}",
        floor,
        {
            "eager": lambda: _bound(greedy_until, model, *inputs, STEPS, end),
            "perflint": lambda: _bound(in_chunks, *inputs),
            "perflint fix": lambda: _bound(fixed_module("Decoder", model).until, *inputs, STEPS, end),
            "by hand": lambda: _no_grad(capture_until(model, inputs, STEPS, end)),
        },
    )


def _training(name: str, floor: float, model: nn.Module, inputs: tuple[Tensor, Tensor | None]) -> Case:
    model = model.to(DEVICE)
    first, target = inputs
    arguments = (first,) if target is None else (first, target)

    def step(forward: Callable[..., Tensor], owner: nn.Module) -> Run:
        def run() -> Any:
            owner.zero_grad(set_to_none=True)
            out = forward(*arguments)
            loss = out.square().mean() if target is None else F.cross_entropy(out.flatten(0, 1), target.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach(), [parameter.grad for parameter in owner.parameters()]

        return run

    def by_hand() -> Run:
        own = copy.deepcopy(model)
        return step(torch.cuda.make_graphed_callables(own, arguments), own)  # type: ignore[arg-type]

    def owned(wrap: Callable[[nn.Module], Any]) -> Run:
        own = copy.deepcopy(model)
        return step(wrap(own), own)

    def by_fix(plain_name: str) -> Run:
        own = fixed_module(plain_name, model)
        return step(own, own)

    variants: dict[str, Callable[[], Run]] = {
        "eager": lambda: step(model, model),
        "perflint": lambda: owned(cuda_graph),
        "by hand": by_hand,
        "torch.jit.script": lambda: owned(torch.jit.script),
        "torch.compile": lambda: owned(torch.compile),
    }
    if plain_name := _PLAIN_NAMES.get(type(model)):
        variants["perflint fix"] = lambda: by_fix(plain_name)
    return Case(name, floor, variants)


def _transformer(batch: int) -> Case:
    model = Transformer().to(DEVICE).eval()
    token = torch.zeros(batch, dtype=torch.long, device=DEVICE)
    steps = model.shape[4]
    captured = cuda_graph(Transformer.generate)

    def by_fix() -> Run:
        own = fixed_module("Transformer", model)
        return _no_grad(lambda: own.generate(token, own.empty_cache(batch), steps))

    def by_hand() -> Run:
        cache = model.empty_cache(batch)
        return _no_grad(capture(lambda t: model.generate(t, cache.zero_(), steps), (token,)))

    def compiled() -> Run:
        own = copy.deepcopy(model)
        own.blocks = torch.nn.ModuleList(torch.compile(block) for block in own.blocks)  # type: ignore[misc]
        return _no_grad(lambda: own.generate(token, own.empty_cache(batch), steps))

    return Case(
        f"Transformer decoder, 4 layers, static cache, {steps} steps, B={batch}",
        2.0,
        {
            "eager": lambda: _no_grad(lambda: model.generate(token, model.empty_cache(batch), steps)),
            "perflint": lambda: _no_grad(lambda: captured(model, token, model.empty_cache(batch), steps)),
            "perflint fix": by_fix,
            "by hand": by_hand,
            "torch.compile of the blocks": compiled,
        },
    )


def _advantages() -> Case:
    rewards, values, dones = _rand(128, 64), _rand(129, 64), (_rand(128, 64) > 1).float()
    inputs = (rewards, values, dones)
    return Case(
        "generalised advantages, T=128 B=64",
        3.0,
        {
            "eager": lambda: _bound(advantages, *inputs),
            "perflint": lambda: _bound(cuda_graph(advantages), *inputs),
            "perflint fix": lambda: _bound(plain().advantages, *inputs),
            "by hand": lambda: _no_grad(capture(advantages, inputs)),
        },
    )
