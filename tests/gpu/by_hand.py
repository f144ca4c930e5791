"""What an expert writes with plain torch.cuda.graph: fixed inputs, one capture, results copied out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.gpu.programs_graphs.decoders import LstmDecoder

CHUNK = 32


def _record(run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = run()
    return graph, result


def capture(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    """A function of tensors as one graph."""
    statics = [tensor.clone() for tensor in inputs]
    graph, output = _record(lambda: function(*statics))

    def run() -> Tensor:
        for static, tensor in zip(statics, inputs, strict=True):
            static.copy_(tensor)
        graph.replay()
        return output.clone()  # type: ignore[no-any-return]

    return run


def capture_until(
    model: LstmDecoder, inputs: tuple[Tensor, Tensor, Tensor], steps: int, end: int
) -> Callable[[], Tensor]:
    """The greedy decoder in chunks; the tokens after the first step at which all rows are at their end are cut off."""
    token, h, c = (tensor.clone() for tensor in inputs)

    def chunk() -> tuple[Tensor, Tensor]:
        tokens, state, last = [], (h, c), token
        for _ in range(CHUNK):
            logits, state = model.step(last, state)
            last = logits.argmax(-1)
            tokens.append(last)
        token.copy_(last)
        h.copy_(state[0])
        c.copy_(state[1])
        stacked = torch.stack(tokens, 1)
        return stacked, (stacked == end).all(0)

    graph, (tokens, ended) = _record(chunk)

    def run() -> Tensor:
        for static, tensor in zip((token, h, c), inputs, strict=True):
            static.copy_(tensor)
        parts = []
        for _ in range(0, steps, CHUNK):
            graph.replay()
            parts.append(tokens.clone())
            flags = ended.tolist()
            if True in flags:
                parts[-1] = parts[-1][:, : flags.index(True) + 1]
                break
        return torch.cat(parts, 1)

    return run
