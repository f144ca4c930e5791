"""Records in the user's process what a program computes: batches, losses, gradients, parameters, states, outputs."""

from __future__ import annotations

import functools
import gc
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint.verify.gate import place
from perflint.verify.orders import Recording, of_rank

if TYPE_CHECKING:
    from perflint.verify.reference import Reference

Tensors = dict[str, Any]


class Recorder:
    """Writes one file for each step, as it is ordered."""

    def __init__(self, recording: Recording) -> None:
        self._orders = recording
        self._reference: Reference | None = None  # behind a restart, where one is wanted
        self._step = 0
        self._batches: list[str] = []
        self._losses: list[float] = []
        self._outputs: list[Tensors] = []

    def watch(self, torch: Any) -> None:
        """Note losses and batches from now on."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        _wrap(torch.Tensor, "backward", self._note_loss)
        iterator.__next__ = _behind(iterator.__next__, self._note_batch)  # type: ignore[method-assign]

    def note_output(self, result: object) -> None:
        """Note what a function returned."""
        self._outputs.append(self._copies(tensors_in(result)))

    @functools.cached_property
    def _recording(self) -> Recording:
        """The orders for this rank, which is known by its first step."""
        rank, _ = place()
        folder, follow = (of_rank(folder, rank) for folder in (self._orders.folder, self._orders.follow))
        Path(folder).mkdir(exist_ok=True)
        return replace(self._orders, folder=folder, follow=follow)

    def passed(self, optimizer: Any) -> None:
        """Write down a step, at the end of which `optimizer` has just stepped, if there is one."""
        import torch

        self._step += 1
        state = _State(optimizer)
        if self._reference or not self._recording.reference:
            torch.save(self._content(state), Path(self._recording.folder) / f"{self._step}.pt")
        self._batches, self._losses, self._outputs = [], [], []
        if self._reference:
            self._reference.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._reference = None
        if self._recording.follow and self._step in self._recording.restart:
            self._go_on(state)

    def _content(self, state: _State) -> dict[str, Any]:
        tensors = state.tensors()
        noted = {"batches": self._batches, "losses": self._losses, "outputs": self._outputs}
        if self._step in self._recording.full:
            gaps = sorted(self._reference.gaps) if self._reference else []
            return {**noted, "tensors": self._copies(tensors.items()), "dice": _dice(), "gaps": gaps}
        return {**noted, "digests": {name: digest(tensor) for name, tensor in tensors.items()}}

    def _go_on(self, state: _State) -> None:
        """From here on, go on from the state that was recorded in the run that is followed."""
        import torch

        followed = Path(self._recording.follow) / f"{self._step}.pt"
        known = torch.load(followed, map_location="cpu", weights_only=False)
        state.take_over(known["tensors"])
        _set_dice(known["dice"])
        if self._recording.reference:
            from perflint.verify.reference import Reference, prefer_plain_kernels

            prefer_plain_kernels()
            self._reference = Reference()
            self._reference.__enter__()  # type: ignore[no-untyped-call]

    def _copies(self, named: Iterable[tuple[str, Any]]) -> Tensors:
        return {name: self._value(tensor.detach()).cpu().clone() for name, tensor in named}

    def _value(self, tensor: Any) -> Any:
        return self._reference.value(tensor) if self._reference else tensor

    def _note_loss(self, loss: Any, *_args: Any, **_kwargs: Any) -> None:
        if loss.numel() == 1:
            self._losses.append(float(self._value(loss.detach())))

    def _note_batch(self, batch: object) -> None:
        self._batches.append(digest([tensor for _, tensor in tensors_in(batch)]))


class _State:
    """The parameters that an optimizer steps, their gradients, its own state, and the buffers of modules."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._modules = _modules()

    def tensors(self) -> Tensors:
        """All of them, by names that are the same in each run of the program."""
        return dict(self._named())

    def take_over(self, tensors: Mapping[str, Any]) -> None:
        """Overwrite, in place, all that may be, but for gradients."""
        import torch

        with torch.no_grad():
            for name, tensor in self._named():
                known = tensors.get(name)
                if not name.startswith("gradient") and known is not None and known.shape == tensor.shape:
                    tensor.detach().copy_(known)

    def _named(self) -> Iterator[tuple[str, Any]]:
        for group, options in enumerate(self._optimizer.param_groups if self._optimizer else ()):
            for number, parameter in enumerate(options["params"]):
                name = f"{group}.{number}"
                yield f"parameter {name}", parameter
                if parameter.grad is not None:
                    yield f"gradient {name}", parameter.grad
                for path, tensor in tensors_in(self._optimizer.state.get(parameter, {})):
                    yield f"optimizer {name}{path}", tensor
        for number, module in enumerate(self._modules):
            for name, buffer in module.named_buffers():
                yield f"buffer {number}.{name}", buffer


def _modules() -> list[Any]:
    """The outermost modules that there are, in the order in which they were made."""
    from torch.nn import Module

    found = [each for each in gc.get_objects() if issubclass(type(each), Module)]  # isinstance may run code of theirs
    inner = {id(child) for module in found for child in module.modules() if child is not module}
    return [module for module in found if id(module) not in inner]


def tensors_in(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors in nested lists, tuples, dicts and dataclass-like objects, each with its path."""
    from torch import Tensor

    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from tensors_in(item, f"{path}.{number}")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, item in vars(value).items():
            if isinstance(item, Tensor | list | tuple | Mapping):
                yield from tensors_in(item, f"{path}.{name}")


def digest(value: object) -> str:
    """Names the values, types and shapes of tensors; of whatever else, its representation."""
    from torch import Tensor

    mark = blake2b(digest_size=16)
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, Tensor):
            plain = each.detach().cpu().contiguous()
            mark.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
            mark.update(plain.flatten().view(_bytes_type()).numpy().tobytes() if plain.numel() else b"")
        else:
            mark.update(repr(each).encode("utf-8", "surrogatepass"))
    return mark.hexdigest()


def _bytes_type() -> Any:
    return sys.modules["torch"].uint8


def _dice() -> list[Any]:
    """The states of all generators of random numbers."""
    import torch

    numpy = sys.modules.get("numpy")
    device = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return [
        torch.get_rng_state(),
        torch.cuda.get_rng_state() if device else None,
        random.getstate(),
        numpy.random.get_state() if numpy else None,
    ]


def _set_dice(states: list[Any]) -> None:
    import torch

    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])
    random.setstate(states[2])
    if states[3] is not None:
        sys.modules["numpy"].random.set_state(states[3])


def _wrap(owner: Any, name: str, note: Callable[..., None]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, noted)


def _behind(function: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        note(result)
        return result

    return noted
