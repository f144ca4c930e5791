"""Compiles the outermost modules that a program calls repeatedly, in place, from their third call on.

They keep their types, the keys of their checkpoints and eager mode's random numbers. Frames that can't be traced and
graphs that can't be compiled stay eager.
"""

from __future__ import annotations

import sys
import time
import weakref
from pathlib import Path
from typing import Any

from perflint.shim import hooks
from perflint.shim.counts import Tally
from perflint.shim.hooks import Undo, replace
from perflint.shim.plan import COMPILE

MODULE = "torch.nn.modules.module"
COMPILER = "torch._inductor.compile_fx"  # which takes seconds to import
_ENOUGH = 3  # calls, after which it is compiled
_SHARDED = ("FullyShardedDataParallel", "FSDPModule")
_WRAPPERS = ("DataParallel", "DistributedDataParallel")


def watch(run: Path, graphs: bool, module: Any) -> Undo:
    """Count the calls of modules, and compile those that are called often; results are tallied in `run`.

    With `graphs`, what is compiled is launched as CUDA graphs.
    """
    modules = _Modules(run, graphs)

    def call(each: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            modules.called(each)
        except Exception as error:
            hooks.warn(f"leaves {type(each).__qualname__} eager: {error!r}")
        return each._call_impl(*args, **kwargs)

    return replace(module.Module, "_compiled_call_impl", call)  # which a module that is compiled has of its own


class _Modules:
    """The modules of this process that have been called."""

    def __init__(self, run: Path, graphs: bool) -> None:
        self._run, self._graphs = run, graphs
        self._calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._settled = set[int]()  # numbers of modules: inner ones of those that were called, and decided ones

    def called(self, module: Any) -> None:
        """Count a call of `module`, and compile it from the next one on if there were enough."""
        if id(module) in self._settled or not _is_plain_call():
            return
        calls = self._calls[module] = self._calls.get(module, 0) + 1
        if calls == 1:
            self._settled.update(id(inner) for inner in module.modules() if inner is not module)
        elif calls == _ENOUGH:
            self._settled.add(id(module))
            self._decide(module)

    def _decide(self, module: Any) -> None:
        if not any(True for _ in module.parameters()):
            return  # a loss, or the like
        tally = Tally(self._run, COMPILE, type(module).__qualname__)
        if self._graphs and not sys.modules["torch"].version.cuda:
            tally.remark("left eager: this torch has no CUDA")
            return
        if reason := _obstacle(module):
            tally.remark(f"left eager: {reason}")
            return
        try:
            _compile(module, tally, self._graphs)
        except Exception as error:
            _give_up(module, tally, error)


def _is_plain_call() -> bool:
    """Whether no capture, compiler, tracer, transform, mode or checkpoint observes this call."""
    torch = sys.modules["torch"]
    return (
        not torch.compiler.is_compiling()
        and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._get_tracing_state() is None
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    )


def _obstacle(module: Any) -> str:
    """Why a module must not be compiled; empty if it may."""
    torch = sys.modules["torch"]
    kinds = {kind.__name__ for each in module.modules() for kind in type(each).__mro__}
    if kinds & {*_SHARDED}:
        return "its parameters are sharded"
    if kinds & {*_WRAPPERS}:
        return "it is called by way of copies or of other processes"
    if any(isinstance(each, torch.jit.ScriptModule) for each in module.modules()):
        return "it is scripted"
    if any("_compiled_call_impl" in vars(each) or hasattr(each, "_orig_mod") for each in module.modules()):
        return "the program compiles it itself"
    return ""


def _compile(module: Any, tally: Tally, graphs: bool) -> None:
    import torch._dynamo.config as tracing
    import torch._functorch.config as gradients
    from torch._inductor import compile_fx

    tracing.suppress_errors = True  # a frame that can't be traced is run as it is
    tracing.skip_nnmodule_hook_guards = False  # hooks that come later are called
    gradients.donated_buffer = False  # which could not be gone through twice
    options = {"fallback_random": True, "triton.cudagraphs": graphs}
    spent = 0.0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal spent
        start = time.perf_counter()
        try:
            fast = compile_fx.compile_fx(graph, inputs, config_patches=options)
        except Exception as error:
            _give_up(module, tally, error)
            return graph.forward
        spent += time.perf_counter() - start
        tally.remark(f"compiling took {spent:.1f} s")
        return fast

    module.compile(backend=backend)
    compiled = module._compiled_call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        if not _is_plain_call():
            return module._call_impl(*args, **kwargs)
        tally.add()
        return compiled(*args, **kwargs)

    module._compiled_call_impl = call


def _give_up(module: Any, tally: Tally, error: Exception) -> None:
    """Run `module` eagerly from the next call on, and say so."""
    module._compiled_call_impl = None
    tally.remark(f"left eager: {error!r}")
    hooks.warn(f"leaves {type(module).__qualname__} eager: compiling it failed: {error!r}")
