"""A step as one CUDA graph, as an expert writes it by torch.cuda.graph: fixed inputs, one capture."""

import argparse
import time

import torch


def begun():
    """The sizes that are asked for, and the device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    torch.manual_seed(0)
    return parser.parse_args(), torch.device("cuda")


def recorded(step, *inputs):
    """`step` as a graph over copies of `inputs`; its optimizers have to be capturable."""
    fixed = [each.clone() for each in inputs]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(*fixed)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(*fixed)

    def replay(*given):
        torch._foreach_copy_(fixed, list(given))
        graph.replay()
        return result

    return replay


def epochs(args, run):
    """Time each epoch, which `run` takes and whose last loss it returns."""
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        loss = run()
        print(f"epoch {epoch} loss {loss.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)
