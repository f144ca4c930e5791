"""Settings of a whole program that are made in memory as it imports torch: what an expert would try first."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perflint.shim.counts import Tally
from perflint.shim.hooks import Undo, before, replace, undo_all
from perflint.shim.plan import COMPILE

MODULE = "torch"
SETTINGS = "settings"  # a kind of tallies
COMPILE_GRAPHS = "compile-graphs"
_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
_OWN_FORMS = ("fused", "foreach", "capturable", "differentiable")  # of steps, one of which the program may ask for
_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d")


class Setting(NamedTuple):
    """What it does, what it promises, and how it is made; the names of those that it excludes.

    `regimes`: what bounds the steps in which it may gain. Empty: any. It `starts_slowly` if it compiles, and gains on a
    GPU alone if it `needs_gpu`.
    """

    title: str
    safety: str
    make: Callable[[Any, Tally], Undo] | None
    rivals: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    starts_slowly: bool = False
    needs_gpu: bool = False


def starts_slowly(name: str) -> bool:
    """Whether a setting of that name, if there is one, compiles."""
    return name in KNOWN and KNOWN[name].starts_slowly


def watch(run: Path, names: Iterable[str], torch: Any) -> Undo:
    """Make these settings; what takes effect is tallied in `run`."""
    makers = [(name, KNOWN[name].make) for name in names]
    return undo_all([make(torch, Tally(run, SETTINGS, name)) for name, make in makers if make])


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


def _channels_last(torch: Any, tally: Tally) -> Undo:
    def made(init: Any) -> Any:
        @functools.wraps(init)
        def arranged(self: Any, *args: Any, **given: Any) -> None:
            init(self, *args, **given)
            if type(self.weight) is torch.nn.Parameter:  # and not one that is to be made later
                self.weight.data = self.weight.data.to(memory_format=torch.channels_last)
                tally.add()

        return arranged

    tally.remark("the program makes no convolution")
    kinds = [getattr(torch.nn, name) for name in _CONVOLUTIONS]
    return undo_all([replace(kind, "__init__", made(kind.__init__)) for kind in kinds])


def _more_workers(torch: Any, tally: Tally) -> Undo:
    from perflint.runtime.loader import more_workers  # here: it needs torch

    seen = weakref.WeakSet[Any]()

    def raise_number(loader: Any) -> None:
        if loader in seen or type(loader) is not kind:
            return
        seen.add(loader)
        decision = more_workers(loader)
        if not decision.arguments:
            tally.remark(f"of a loader of the program: {decision.reason}")
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
    "tf32": Setting(
        'torch.set_float32_matmul_precision("high")', "precision", _tf32, regimes=_ARITHMETIC, needs_gpu=True
    ),
    "bfloat16": Setting("autocast to bfloat16", "precision", _bfloat16, regimes=_TRAFFIC),
}
