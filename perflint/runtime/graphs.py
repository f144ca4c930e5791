"""Runs a function, chunks of a loop or a step of training as one CUDA graph, with the results of eager mode."""

from __future__ import annotations

try:
    import torch
except ImportError as _error:
    raise ImportError("perflint.runtime.graphs needs PyTorch: pip install torch") from _error

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from perflint.runtime.loop import graphed_loop
from perflint.runtime.records import Graphed, Record, Records, name_of
from perflint.runtime.refusal import can_capture, check, explain, inside
from perflint.runtime.replay import Call, Replay
from perflint.runtime.step import GraphedStep, graphed_step
from perflint.runtime.training import TrainingReplay
from perflint.runtime.tree import flatten
from perflint.runtime.walk import Walk

__all__ = ["GraphedFunction", "GraphedStep", "cuda_graph", "graphed_loop", "graphed_step"]

P = ParamSpec("P")
R = TypeVar("R")
_SLOTS = 4  # captures of one key, for forward passes that wait for their backward passes


def cuda_graph(function: Callable[P, R]) -> GraphedFunction[P, R]:
    """Decorate a function, method or module so that it runs as one CUDA graph, with bitwise equal results.

        @cuda_graph
        def decode(model, encoded, steps): ...          # or `fast = cuda_graph(decode)`

    The first call with given arguments is eager and observed, the second is captured, later ones are replayed: the
    Python code doesn't run then. A graph belongs to the shapes, strides, types and device of the tensors among the
    arguments, to the values of the others, and to what the function reads besides: parameters and buffers (by
    address), modules' training mode, attributes, closures and globals that its code names; grad mode and autocast.
    Weights that are updated or loaded in place are used as they are; replaced ones lead to a new graph.

    Tensors among the arguments may be nested in lists, tuples and dicts; they are copied in. Results are copied out:
    they belong to the caller and share no memory with arguments or with other results. Gradients flow through a
    captured backward pass, which sums the parts of each parameter's gradient beside it, as eager mode does, where they
    take no more than a 64th of the device's memory. Random numbers on the device advance the generator as they do in
    eager mode.

    Eight graphs are kept, which may hold a quarter of the device's memory; the least recently used ones go first.

    What can't be captured stays eager, with one RuntimeWarning that says why: synchronisation with the host
    (`.item()`, `if tensor:`, masks as indices), copies between host and device, random numbers of the host, hooks on
    modules, attributes that are assigned, gradients computed inside, arguments that differ at every call. Without
    torch.cuda, within other captures, torch.compile or dispatch modes, the function is called unchanged.

    Limits: what the function does besides computing (printing, counting, appending to long lists) happens only while
    it isn't replayed. Second derivatives raise RuntimeError. Where a parameter is used outside of the function as
    well, its gradients are summed in another order. Global switches such as TF32 must be set before the first call.

    Raises TypeError for generator functions and coroutines.
    """
    return GraphedFunction(function)


class GraphedFunction(Graphed[P, R]):
    """What `cuda_graph` returns: called like the function, and a method where the function would be one."""

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function, "cuda_graph")
        self._records = Records(name_of(function), function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, by replaying its graph where there is one."""
        if not can_capture():
            return self.__wrapped__(*args, **kwargs)
        mode = _mode(self.__wrapped__, args)
        if mode in self._records.refused:
            return self.__wrapped__(*args, **kwargs)
        return self._replay(Call(self.__wrapped__, *flatten((args, kwargs))), mode)  # type: ignore[no-any-return]

    def _walk(self, call: Call) -> Walk:
        return Walk(self._records.scope, call.function, call.structure, call.leaves)

    def _replay(self, call: Call, mode: Hashable) -> Any:
        walk = self._walk(call)
        if not walk.devices:
            return call.run({})
        if reason := check(walk):
            self._records.refuse(mode, reason)
            return call.run({})
        stream = torch.cuda.current_stream().cuda_stream
        with self._records.lock:
            for slot in range(_SLOTS):
                key = walk.key(stream, slot)
                record = self._records.find(key)
                if record is None:
                    break
                if record.capture is None and not self._capture(record, call, walk, mode):
                    return call.run({})
                if not record.capture.busy:
                    self._records.replayed()
                    return record.capture(walk.inputs)
            else:
                return call.run({})
        run, functions = partial(call.run, {}), (call.function,)
        return self._records.observe(mode, partial(self._walk, call), functions, run, lambda w: w.key(stream, slot))

    def _capture(self, record: Record, call: Call, walk: Walk, mode: Hashable) -> bool:
        trained = torch.is_grad_enabled() and any(t.requires_grad for t in (*walk.inputs, *walk.state))
        try:
            with inside():
                if trained:
                    capture: Any = TrainingReplay(call, walk, record.facts, self._records.warn)
                else:
                    capture = Replay(call, walk, record.facts)
            reason = self._records.keep(record, capture)
        except Exception as error:
            reason = explain(error)
        if reason is not None:
            self._records.refuse(mode, reason)
        return reason is None


def _mode(function: object, args: tuple[object, ...]) -> Hashable:
    """What a function's reasons for staying eager are kept for: grad mode, and training mode of the modules given."""
    owners = (getattr(function, "__self__", function), *args)
    return (torch.is_grad_enabled(), *[owner.training for owner in owners if isinstance(owner, torch.nn.Module)])
