"""Settings of a whole program, made in memory as it imports torch, and compiled modules."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perflint.shim import hooks
from perflint.shim.hooks import Tally, Undo, before, replace, undo_all
from perflint.shim.plan import COMPILE

MODULE = "torch"
SETTINGS = "settings"  # a kind of tallies
COMPILE_GRAPHS = "compile-graphs"
COMPILING = (COMPILE, COMPILE_GRAPHS)
COMPILER = "torch._inductor.compile_fx"  # which takes seconds to import
_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
_OWN_FORMS = ("fused", "foreach", "capturable", "differentiable")  # of steps, one of which the program may ask for
_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d")
_BEFORE_BUCKETS = 7  # arguments of DistributedDataParallel, of which programs give the first two or three
_ENOUGH = 3  # calls, after which it is compiled
_SHARDED = ("FullyShardedDataParallel", "FSDPModule")
_WRAPPERS = ("DataParallel", "DistributedDataParallel")


class Setting(NamedTuple):
    """What it does, what it promises, how it is made, and which others it excludes.

    `regimes`: what bounds the steps in which it may gain; empty: any. It `starts_slowly` if it compiles; some need a
    GPU, or several processes (`needs_ranks`).
    """

    title: str
    safety: str
    make: Callable[[Any, Tally], Undo] | None  # none for those that compile
    rivals: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    starts_slowly: bool = False
    needs_gpu: bool = False
    needs_ranks: bool = False


def starts_slowly(name: str) -> bool:
    return name in KNOWN and KNOWN[name].starts_slowly


def watch(run: Path, names: Iterable[str], torch: Any) -> Undo:
    return undo_all([_made(run, name, torch) for name in names])


def _made(run: Path, name: str, torch: Any) -> Undo:
    if make := KNOWN[name].make:
        return make(torch, Tally(run, SETTINGS, name))
    return _watch_modules(torch, lambda kind: Tally(run, SETTINGS, f"{COMPILE} {kind}"), graphs=name == COMPILE_GRAPHS)


def _tf32(torch: Any, tally: Tally) -> Undo:
    before = torch.get_float32_matmul_precision()
    if not _has_cuda(torch, tally):
        return undo_all(())
    if before != "highest":
        tally.remark(f"the program's precision is {before} already")
        return undo_all(())
    torch.set_float32_matmul_precision("high")
    tally.add()
    return lambda: torch.set_float32_matmul_precision(before)


def _benchmark(torch: Any, tally: Tally) -> Undo:
    cudnn, before = torch.backends.cudnn, torch.backends.cudnn.benchmark
    if not _has_cuda(torch, tally):
        return undo_all(())
    cudnn.benchmark = True
    tally.add()

    def undo() -> None:
        cudnn.benchmark = before

    return undo


def _bfloat16(torch: Any, tally: Tally) -> Undo:
    kind = "cuda" if torch.version.cuda else "cpu"
    torch.set_autocast_dtype(kind, torch.bfloat16)
    torch.set_autocast_cache_enabled(False)  # nothing would empty it when parameters change
    torch.set_autocast_enabled(kind, True)
    tally.add()
    return lambda: torch.set_autocast_enabled(kind, False)


def _fused(torch: Any, tally: Tally) -> Undo:
    def made(init: Any) -> Any:
        @functools.wraps(init)
        def fused(self: Any, params: Any, *args: Any, **given: Any) -> None:
            params = list(params)
            if type(self).__name__ not in _FUSED or any(given.get(name) is not None for name in _OWN_FORMS):
                tally.remark("the program chooses how its optimizers step")
                init(self, params, *args, **given)
                return
            try:
                init(self, params, *args, **{**given, "fused": True})
            except (RuntimeError, TypeError, ValueError) as error:
                tally.remark(f"{type(self).__name__}: {error}")
                init(self, params, *args, **given)
            else:
                tally.add()

        return fused

    tally.remark("the program makes no optimizer that has a fused form")
    kinds = [getattr(torch.optim, name) for name in _FUSED]
    return undo_all([replace(kind, "__init__", made(kind.__init__)) for kind in kinds])


def _exchanging(name: str, value: object) -> Callable[[Any, Tally], Undo]:
    def make(torch: Any, tally: Tally) -> Undo:
        kind = torch.nn.parallel.DistributedDataParallel
        init = kind.__init__

        @functools.wraps(init)
        def given(self: Any, *args: Any, **named: Any) -> None:
            if len(args) > _BEFORE_BUCKETS or name in named:
                tally.remark(f"the program gives {name} itself")
                init(self, *args, **named)
            else:
                init(self, *args, **{**named, name: value})
                tally.add()

        tally.remark("the program makes no DistributedDataParallel")
        return replace(kind, "__init__", given)

    return make


def _channels_last(torch: Any, tally: Tally) -> Undo:
    """Arrange weights at the first call, since random numbers fill weights in memory order before.

    They get new memory, so weights stay as they are that something else may hold: a state dict, a buffer of all
    parameters, another process, a captured graph. Modules get no attributes: they may be pickled or scripted.
    """
    seen = weakref.WeakSet[Any]()

    def arrange(conv: Any) -> None:
        weight = conv.weight
        if type(weight) is not torch.nn.Parameter:  # but a replica's, or a functional call's
            return
        is_captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
        if not is_captured and not _is_plain_call():
            return
        seen.add(conv)
        if is_captured or _shares_memory(torch, weight):
            tally.remark("the program keeps the memory of a convolution's weights elsewhere, too")
            return
        with torch.inference_mode(False):
            weight.data = weight.data.to(memory_format=torch.channels_last)
        tally.add()

    def call(conv: Any, *args: Any, **given: Any) -> Any:
        if not torch.compiler.is_compiling() and conv not in seen:
            arrange(conv)
        inherited = torch.nn.Module._compiled_call_impl  # of what else is watched
        return inherited(conv, *args, **given) if inherited else conv._call_impl(*args, **given)

    def undo() -> None:
        for kind in kinds:
            del kind._compiled_call_impl

    tally.remark("the program calls no convolution")
    kinds = [getattr(torch.nn, name) for name in _CONVOLUTIONS]
    for kind in kinds:
        kind._compiled_call_impl = call
    return undo


def _shares_memory(torch: Any, weight: Any) -> bool:
    if weight.dim() != 4 or (weight.is_cpu and weight.is_shared()):
        return True
    count = getattr(torch._C, "_storage_Use_Count", None)
    own = 2  # the parameter, and the storage of Python's that is asked for here
    return count is None or count(weight.untyped_storage()._cdata) > own


def _more_workers(torch: Any, tally: Tally) -> Undo:
    from perflint.runtime.loader import more_workers  # here: it needs torch

    seen = weakref.WeakSet[Any]()

    def raise_number(loader: Any) -> None:
        if loader in seen or type(loader) is not kind:
            return
        seen.add(loader)
        decision = more_workers(loader)
        if not decision.arguments:
            tally.remark(f"a loader stays as it is: {decision.reason}")
            return
        loader.num_workers = decision.arguments["num_workers"]
        tally.add()

    tally.remark("the program reads no loader with workers")
    kind = torch.utils.data.DataLoader
    return replace(kind, "__iter__", before(kind.__iter__, raise_number))


def _has_cuda(torch: Any, tally: Tally) -> bool:
    if not torch.version.cuda:
        tally.remark("this torch has no CUDA")
    return bool(torch.version.cuda)


_ARITHMETIC = ("compute",)
_TRAFFIC = ("compute", "memory")
_SMALL = ("overhead", "host reads", "memory")
_EXCHANGE = ("communication", "memory")
_ANYWHERE = (*_SMALL, *_TRAFFIC)
_COMPILED = "compile the modules that are called again and again"
KNOWN: Mapping[str, Setting] = {
    COMPILE_GRAPHS: Setting(
        f"{_COMPILED}, into CUDA graphs (reduce-overhead)",
        "rounding",
        None,
        (COMPILE,),
        _ANYWHERE,
        starts_slowly=True,
        needs_gpu=True,
    ),
    COMPILE: Setting(
        f"{_COMPILED}, as `perflint run --compile` does", "rounding", None, (COMPILE_GRAPHS,), _ANYWHERE, True
    ),
    "more-workers": Setting("more workers for loaders that have some", "exact", _more_workers, regimes=("input",)),
    "cudnn-benchmark": Setting(
        "torch.backends.cudnn.benchmark = True", "rounding", _benchmark, regimes=_ARITHMETIC, needs_gpu=True
    ),
    "fused-optimizer": Setting("fused=True for optimizers", "rounding", _fused, regimes=_SMALL),
    "channels-last": Setting("weights of convolutions as channels_last", "rounding", _channels_last, regimes=_TRAFFIC),
    "ddp-bucket-views": Setting(
        "gradient_as_bucket_view=True for DistributedDataParallel",
        "exact",
        _exchanging("gradient_as_bucket_view", True),
        regimes=_EXCHANGE,
        needs_ranks=True,
    ),
    "ddp-buckets": Setting(
        "bucket_cap_mb=100 for DistributedDataParallel",
        "rounding",
        _exchanging("bucket_cap_mb", 100),
        regimes=_EXCHANGE,
        needs_ranks=True,
    ),
    "tf32": Setting(
        'torch.set_float32_matmul_precision("high")', "precision", _tf32, regimes=_ARITHMETIC, needs_gpu=True
    ),
    "bfloat16": Setting("autocast to bfloat16", "precision", _bfloat16, regimes=_TRAFFIC),
}


def _watch_modules(torch: Any, tally: Callable[[str], Tally], *, graphs: bool) -> Undo:
    """Compile outermost modules that are called often, and count their calls in a `tally` for each class.

    They are compiled in place: types, checkpoint keys and eager mode's random numbers stay. What can't be traced or
    compiled stays eager. With `graphs`, compiled code is launched as CUDA graphs.
    """
    modules = _Modules(tally, graphs)

    def call(each: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            modules.called(each)
        except Exception as error:
            hooks.warn(f"leaves {type(each).__qualname__} eager: {error!r}")
        return each._call_impl(*args, **kwargs)

    return replace(torch.nn.Module, "_compiled_call_impl", call)  # which a module that is compiled has of its own


class _Modules:
    def __init__(self, tally: Callable[[str], Tally], graphs: bool) -> None:
        self._tally, self._graphs = tally, graphs
        self._calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._settled = set[int]()  # numbers of modules: inner ones of those that were called, and decided ones

    def called(self, module: Any) -> None:
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
        tally = self._tally(type(module).__qualname__)
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
    module._compiled_call_impl = None
    tally.remark(f"left eager: {error!r}")
    hooks.warn(f"leaves {type(module).__qualname__} eager: compiling it failed: {error!r}")
