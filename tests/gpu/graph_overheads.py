"""What captured functions cost besides their kernels: keys, calls that stay eager, memory."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perflint.runtime.graphs import cuda_graph
from perflint.runtime.replay import flatten
from perflint.runtime.scope import Scope
from perflint.runtime.walk import Walk
from tests.gpu.measure import seconds
from tests.gpu.programs_graphs.decoders import LstmDecoder, Transformer, greedy, greedy_until


def _microseconds(run: Callable[[], object], count: int = 2000) -> float:
    best = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            run()
        best.append((time.perf_counter() - start) / count * 1e6)
    return round(statistics.median(best), 2)


def _key(function: Any, *arguments: Any) -> float:
    scope = Scope(function)

    def run() -> None:
        structure, leaves = flatten((arguments, {}))
        Walk(scope, function, structure, leaves).key()

    return _microseconds(run, 500)


def _nothing(x: Tensor) -> Tensor:
    return x


def _draws(x: Tensor) -> Tensor:
    torch.rand(())
    return x


def overheads() -> dict[str, Any]:
    """Microseconds, mebibytes and ratios, by what they are."""
    if not torch.cuda.is_available():
        return {}
    device = torch.device("cuda")
    model, transformer = LstmDecoder().to(device), Transformer().to(device)
    h, c = (torch.randn(1, 8, 512, device=device) for _ in "hc")
    inputs = (torch.zeros(8, dtype=torch.long, device=device), h, c)
    found: dict[str, Any] = {}
    found["key of the greedy LSTM decoder, us"] = _key(greedy, model, *inputs, 128)
    cache = transformer.empty_cache(8)
    found["key of the Transformer, us"] = _key(Transformer.generate, transformer, inputs[0], cache, 64)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        refused = cuda_graph(_draws)
        refused(inputs[1])
        refused.__wrapped__ = _nothing
        plain = _microseconds(lambda: _nothing(inputs[1]))
        found["a call that stays eager, us more"] = round(_microseconds(lambda: refused(inputs[1])) - plain, 2)
        staying = cuda_graph(greedy_until)
        pairs = []
        for _ in range(3):
            staying(model, *inputs, 32, -1)
        for _ in range(31):
            eager = seconds(lambda: greedy_until(model, *inputs, 32, -1))
            pairs.append(seconds(lambda: staying(model, *inputs, 32, -1)) / eager)
        found["loop that stays eager / eager"] = round(statistics.median(pairs), 4)
        found["why it stays eager"] = staying.eager_because
        found |= _memory(model)
    return found


def _memory(model: LstmDecoder) -> dict[str, Any]:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graphed = cuda_graph(greedy, max_graphs=4)
    held = []
    for batch in (8, 16, 24, 32, 40, 48, 56):
        token = torch.zeros(batch, dtype=torch.long, device="cuda")
        h, c = (torch.zeros(1, batch, 512, device="cuda") for _ in "hc")
        for _ in range(3):
            graphed(model, token, h, c, 128)
        held.append((graphed.graphs, round(graphed.bytes / 2**20, 1)))
    torch.cuda.empty_cache()
    full = torch.cuda.memory_reserved() - before
    graphed.clear()
    torch.cuda.empty_cache()
    return {
        "graphs held, MiB, shape after shape with max_graphs=4": held,
        "MiB reserved with 4 graphs; after clear()": (
            round(full / 2**20, 1),
            round((torch.cuda.memory_reserved() - before) / 2**20, 1),
        ),
    }
