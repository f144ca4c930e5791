"""Compares the records of two runs, step by step."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perflint.verify.agent.recorder import LATER, LOSS, OUTPUT, Read
from perflint.verify.agent.state import DERIVED, GRADIENT, OPTION, TRAINED

EPSILON = 2.0**-23  # the relative rounding error of float32
LOGARITHMS = frozenset({"the size of gradients", "how far weights move"})  # traits whose differences are ratios
_MANY = (GRADIENT, *DERIVED)  # each a kind of many tensors, some next to nothing
REPLAY = "what a replay leaves in"
_KEPT = (*DERIVED, OPTION)
_FEW = 1000  # elements: the error of fewer is a matter of luck


@dataclass(frozen=True)
class Difference:
    """A value on which two runs disagree.

    `error` is the RMS of the difference over that of the value, not finite for non-finite values or other shapes, None
    where only digests are known. `reference` and `changed` are both runs' errors against double precision, if known.
    `is_close` as in torch.testing.assert_close. `of_kind` is the error over the largest values of the kind; `is_coarse`
    are values of few elements or digits.
    """

    step: int
    name: str
    error: float | None
    is_close: bool
    reference: float | None = None
    changed: float | None = None
    of_kind: float | None = None
    is_coarse: bool = False

    @property
    def share(self) -> float:
        return self.of_kind / self.error if self.of_kind and self.error else 1.0


@dataclass(frozen=True)
class Comparison:
    """What was compared: `steps`, `values`, what differs in kind (`parted`), the data's `order`, and in value.

    Of the state, only tensors that change count. `referenced`: some steps have double precision; `restarted` are those
    for which that was tried, from the original's state.
    """

    steps: int
    values: int
    parted: tuple[str, ...]
    differences: tuple[Difference, ...]
    referenced: bool = False
    order: tuple[str, ...] = ()
    restarted: frozenset[int] = frozenset()

    @property
    def is_bitwise(self) -> bool:
        return not self.parted and not self.order and not self.differences


class Evidence:
    def __init__(self) -> None:
        self._seen: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, name: str, value: Any) -> None:
        if isinstance(value, str) or value.numel():
            self._seen[name][value if isinstance(value, str) else ""] += 1

    @property
    def values(self) -> int:
        return sum(each.total() for name, each in self._seen.items() if not name.startswith(_KEPT) or len(each) > 1)


def compare(before: Path, after: Path, reference: Path | None = None, last: int | None = None) -> Comparison:
    """Compare the records of all ranks; `reference` holds those in double precision.

    Where one was cut, `last` is the last step that both have.
    """
    parted: list[str] = []
    differences: list[Difference] = []
    evidence, referenced = Evidence(), False
    data: list[_Data] = []
    order: list[str] = []
    steps = [_steps(folder) if last is None else last for folder in (before, after)]
    if steps[0] != steps[1]:
        parted.append(f"{steps[0]} steps were recorded before, {steps[1]} after")
    common = sorted({*_numbers(before)} & {*_numbers(after)})
    for number in [each for each in common if last is None or each <= last]:
        old, new, exact = _all_ranks(before, number), _all_ranks(after, number), _exact(reference, number)
        referenced = referenced or bool(exact)
        data.append((number, old["batches"], new["batches"]))
        if old["samples"] != new["samples"]:
            shapes = [", ".join(content["samples"]) or "nothing" for content in (new, old)]
            order.append(f"step {number}: the batches have {shapes[0]}, and not {shapes[1]}")
        parted += _unmatched(number, old, new)
        pairs, digests = list(_values(old, new, exact)), old["digests"]
        for name, value, *_ in pairs:
            evidence.add(name, digests.get(name, value))
        parting = [pair for pair in pairs if not _agree(*pair[1:3])]
        largest = _largest(old) if parting else {}
        found = [_difference(number, *pair, largest.get(_without_numbers(pair[0]), 0.0)) for pair in parting]
        differences += _with_errors_of_kind(found, {name for name, value, *_ in parting if _is_small(value)})
        replays = (differing(step, f"{REPLAY} {name}", *both) for step, name, *both in new["replays"])
        differences += filter(None, replays)
    for each in _saved(before, after) if last is None else ():
        if isinstance(each, str):
            parted.append(each)
        else:
            differences.append(each)
    order += _order(data)
    restarted = frozenset(_numbers(reference)) if reference else frozenset()
    kinds = tuple(parted), tuple(differences), referenced, tuple(order)
    return Comparison(min(steps), evidence.values, *kinds, restarted)


def losses(folder: Path) -> tuple[float, ...]:
    return tuple(map(float, _recorded(map(partial(_load, folder), _numbers(folder)), LOSS)))


def reads(folder: Path) -> list[Read]:
    return [read for number in _numbers(folder) for read in _load(folder, number)["reads"]]


def logged(folder: Path) -> str:
    return "\n".join(line for number in _numbers(folder) for line in _load(folder, number)["logged"])


def traits(folder: Path, *, updates: bool = False) -> dict[str, float]:
    """Average loss, gradients and outputs of a run, to compare runs with other random numbers by.

    With `updates`, the last losses, and how far and whether steps move weights; not the mean output, of which nobody
    knows how small it may be.
    """
    import torch

    steps = [_load(folder, number) for number in _numbers(folder)]
    losses = [_double(loss) for loss in _recorded(steps, LOSS)]
    outputs = [output for output in _recorded(steps, OUTPUT) if not isinstance(output, str) and output.numel()]
    gradients = [
        [_double(value).norm() for name, value in step.get("tensors", {}).items() if name.startswith(GRADIENT)]
        for step in steps
    ]
    found = {
        "the loss": losses,
        "the size of gradients": [torch.stack(norms).norm().log10() for norms in gradients if norms],
        "the output": [_double(output).mean() for output in outputs],
        "the size of outputs": [_double(output).square().mean().sqrt() for output in outputs],
    }
    if updates:
        del found["the output"]
        moved = list(_moved([step["tensors"] for step in steps if step.get("tensors")]))
        found["the loss at the end"] = losses[-max(1, len(losses) // 4) :]
        found["how far weights move"] = [each.norm().log10() for each in moved if each.any()]
        found["the share of weights that move"] = [each.ne(0).double().mean() for each in moved]
    return {name: float(torch.stack(values).mean()) for name, values in found.items() if values}


def _moved(states: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    first, last = (states[0], states[-1]) if states else ({}, {})
    for name, start in first.items():
        end = last.get(name)
        if name.startswith(TRAINED) and end is not None and end.shape == start.shape and start.numel():
            yield _double(end) - _double(start)


def _recorded(steps: Iterable[Mapping[str, Any]], kind: str) -> Iterator[Any]:
    for step in steps:
        yield from (value for name, value in step["values"].items() if re.match(rf"{kind} \d", name))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.pt"))


def _steps(folder: Path) -> int:
    numbers = _numbers(folder)
    return int(_load(folder, numbers[-1])["step"]) if numbers else 0


def _load(folder: Path, number: int) -> dict[str, Any]:
    return _read(folder / f"{number}.pt")


def _read(path: Path) -> dict[str, Any]:
    import torch

    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    return content


def _all_ranks(folder: Path, number: int) -> dict[str, Any]:
    whole = {"digests": {}, "tensors": {}, "gaps": [], "replays": [], **_load(folder, number)}
    for rank in sorted(folder.glob(f"rank */{number}.pt")):
        content = _load(rank.parent, number)
        for part in ("values", "digests", "tensors"):
            whole[part] |= {f"{name} of {rank.parent.name}": each for name, each in content.get(part, {}).items()}
        for part in ("batches", "samples", "gaps", "replays"):
            whole[part] += content.get(part, [])
    return whole


def _exact(reference: Path | None, number: int) -> dict[str, Any]:
    """The step in double precision; empty where not all of it was computed so."""
    if reference is None or not (reference / f"{number}.pt").exists():
        return {}
    content = _all_ranks(reference, number)
    return {} if content["gaps"] else content


_Data = tuple[int, list[str], list[str]]  # a step, and the digests of what two runs have read for it


def _order(data: Sequence[_Data]) -> Iterator[str]:
    first = next((step for step, old, new in data if old != new), None)
    if first is not None:
        before, after = (sorted(itertools.chain(*each)) for each in list(zip(*data, strict=True))[1:])
        yield f"step {first}: the batches {'come in another order' if before == after else 'differ'}"


def _unmatched(step: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = ({*content["digests"], *content["values"]} for content in (old, new))
    if missing := before ^ after:
        owner = "the original" if missing & before else "the patched program"
        yield f"step {step}: only {owner} has {', '.join(sorted(missing)[:3])}"


def _values(
    old: Mapping[str, Any], new: Mapping[str, Any], exact: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any, Any]]:
    for name in old["values"].keys() & new["values"].keys():
        double = None if name.startswith(LATER) else exact.get("values", {}).get(name)
        yield name, old["values"][name], new["values"][name], double
    digests, others = old["digests"], new["digests"]
    for name in digests.keys() & others.keys():
        if digests[name] == others[name]:
            yield name, digests[name], others[name], None
        else:
            before, after = (each["tensors"].get(name, each["digests"][name]) for each in (old, new))
            yield name, before, after, exact.get("tensors", {}).get(name)


def _without_numbers(name: str) -> str:
    return re.sub(r"[\d.]+", "", name)


def _largest(content: Mapping[str, Any]) -> Mapping[str, float]:
    sizes: dict[str, float] = {}
    for name, value in content["tensors"].items():
        if name.startswith(_MANY) and value.numel():
            size = _double(value).square().mean().sqrt().item()
            sizes[_without_numbers(name)] = max(sizes.get(_without_numbers(name), 0.0), size)
    return sizes


def _with_errors_of_kind(differences: Sequence[Difference], small: Collection[str]) -> Iterator[Difference]:
    """The differences of a step; `small` values, whose own may be luck, get the original's largest error of their kind.

    Errors count by the kind's largest value: one next to nothing may be rounding altogether.
    """
    own: dict[str, float] = {}
    for each in differences:
        kind = _without_numbers(each.name)
        own[kind] = max((each.reference or 0.0) * each.share, own.get(kind, 0.0))
    for each in differences:
        of_kind = own[_without_numbers(each.name)] / each.share
        is_luck = each.reference is not None and each.name in small
        yield replace(each, reference=max(each.reference or 0.0, of_kind)) if is_luck else each


def _is_small(value: Any) -> bool:
    return not isinstance(value, str) and value.numel() < _FEW


def _saved(before: Path, after: Path) -> Iterator[Difference | str]:
    saved = [{path.relative_to(folder) for path in folder.rglob("*.saved")} for folder in (before, after)]
    if len(saved[0]) != len(saved[1]):
        yield f"{len(saved[0])} checkpoints were saved before, {len(saved[1])} after"
    for path in sorted(saved[0] & saved[1], key=lambda path: (path.parent, int(path.stem))):
        old, new = (_read(folder / path) for folder in (before, after))
        keys = old["tensors"].keys() ^ new["tensors"].keys()
        if keys:
            owner = "the original" if keys & old["tensors"].keys() else "the patched program"
            yield f"only {owner} saves {', '.join(sorted(key.lstrip('.') for key in keys)[:3])} to {new['name']}"
        if old["step"] != new["step"]:
            yield f"{new['name']} is saved after step {new['step']}, and not {old['step']}"
        for key in old["tensors"].keys() & new["tensors"].keys():
            name = f"{key.lstrip('.')} of {new['name']}"
            found = differing(new["step"], name, old["tensors"][key], new["tensors"][key])
            if found and old["of"][key] and not old["of"][key] & new["of"][key]:
                yield f"{name} is not {min(old['of'][key])} as it stands"
            elif found and not (old["of"][key] and math.isfinite(found.error or 0.0)):
                yield found


def differing(step: int, name: str, before: Any, after: Any) -> Difference | None:
    return None if _agree(before, after) else _difference(step, name, before, after, None, 0.0)


def _agree(before: Any, after: Any) -> bool:
    import torch

    if isinstance(before, str) or isinstance(after, str):
        return isinstance(before, str) and isinstance(after, str) and before == after
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    return torch.equal(before, after) or bool(((before == after) | (before.isnan() & after.isnan())).all())


def _difference(step: int, name: str, before: Any, after: Any, exact: Any, largest: float) -> Difference:
    import torch
    from torch.testing._comparison import default_tolerances

    if isinstance(before, str) or isinstance(after, str):  # one is known by its digest, as it never changes in its run
        are_digests = isinstance(before, str) and isinstance(after, str)
        return Difference(step, name, None if are_digests else math.inf, is_close=False)
    if before.shape != after.shape or before.dtype != after.dtype:
        return Difference(step, name, math.inf, is_close=False)
    scale = _double(before).square().mean().sqrt().item()
    whole = max(scale, largest)
    rtol, atol = default_tolerances(before.dtype)
    close = torch.isclose(after, before, rtol=rtol, atol=min(whole, 1.0) * atol, equal_nan=True)
    error = _error(after, before, scale)
    is_coarse = before.dtype in (torch.float16, torch.bfloat16) or _is_small(before)
    of_kind = error * (scale or 1.0) / (whole or 1.0)
    found = Difference(step, name, error, bool(close.all()), of_kind=of_kind, is_coarse=is_coarse)
    if not torch.is_tensor(exact) or not exact.isfinite().all():
        return found
    own, other = (_error(each, exact, scale) for each in (before, after))
    return replace(found, reference=max(own, EPSILON * largest / (scale or 1)), changed=other)


def _double(tensor: Any) -> Any:
    import torch

    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).double()


def _error(value: Any, other: Any, scale: float) -> float:
    error = (_double(value) - _double(other)).square().mean().sqrt().item()
    return float(error / scale) if scale else float(error)
