"""Compares what two runs of a program computed, step by step, and finds where they part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Difference:
    """A value that two runs don't agree on.

    `error` is the root mean square of the difference over that of the value, not finite where one of them isn't or the
    shapes differ, and None where only digests are known. `reference` is the same of the value against the double
    precision result, where there is one. `is_close` as in torch.testing.assert_close.
    """

    step: int
    name: str
    error: float | None
    is_close: bool
    reference: float | None = None
    changed: float | None = None  # the other run's error against the double precision result


@dataclass(frozen=True)
class Comparison:
    """All that was compared at `steps` steps, what differs in whatever can't be near, and what differs in value.

    `referenced`: some of these steps were computed in double precision too.
    """

    steps: int
    values: int
    parted: tuple[str, ...]
    differences: tuple[Difference, ...]
    referenced: bool = False

    @property
    def is_bitwise(self) -> bool:
        """Whether the runs agree on all."""
        return not self.parted and not self.differences


def compare(before: Path, after: Path, reference: Path | None = None) -> Comparison:
    """Compare the records of all ranks in two folders; the runs went on from the same state behind each restart."""
    ranks = sorted({path.name for folder in (before, after) for path in folder.glob("rank *")})
    parts = [_compare(before, after, reference)]
    for rank in ranks:
        folders = (before / rank, after / rank, reference / rank if reference else None)
        parts.append(_named(_compare(*folders), rank))
    return Comparison(
        parts[0].steps,
        sum(part.values for part in parts),
        tuple(each for part in parts for each in part.parted),
        tuple(each for part in parts for each in part.differences),
        any(part.referenced for part in parts),
    )


def _named(part: Comparison, rank: str) -> Comparison:
    """The comparison of a rank, whatever is told of it by its name."""
    return replace(
        part,
        parted=tuple(f"{rank}: {each}" for each in part.parted),
        differences=tuple(replace(each, name=f"{each.name} of {rank}") for each in part.differences),
    )


def _compare(before: Path, after: Path, reference: Path | None) -> Comparison:
    parted: list[str] = []
    differences: list[Difference] = []
    values, referenced = 0, False
    numbers = [_numbers(folder) for folder in (before, after)]
    if numbers[0] != numbers[1]:
        parted.append(f"{len(numbers[0])} steps were recorded before, {len(numbers[1])} after")
    common = [number for number in numbers[0] if number in numbers[1]]
    for number in common:
        old, new = (_load(folder, number) for folder in (before, after))
        exact = _exact(reference, number)
        referenced = referenced or bool(exact)
        if old["batches"] != new["batches"]:
            parted.append(f"step {number}: the batches differ")
        parted += [
            f"step {number}: {len(old[kind])} {kind} before, {len(new[kind])} after"
            for kind in ("losses", "outputs")
            if len(old[kind]) != len(new[kind])
        ]
        pairs = list(_values(old, new, exact))
        values += len(pairs)
        for name, a, b, c in pairs:
            if isinstance(a, str) or isinstance(b, str):
                if a != b:
                    differences.append(Difference(number, name, None, is_close=False))
            elif (found := _difference(number, name, a, b, c)) is not None:
                differences.append(found)
        if missing := _names(old) ^ _names(new):
            parted.append(f"step {number}: only one of the runs has {', '.join(sorted(missing)[:3])}")
    return Comparison(len(common), values, tuple(parted), tuple(differences), referenced)


def losses(folder: Path) -> tuple[float, ...]:
    """The losses of all recorded steps."""
    return tuple(loss for number in _numbers(folder) for loss in _load(folder, number)["losses"])


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.pt"))


def _load(folder: Path, number: int) -> dict[str, Any]:
    import torch

    content: dict[str, Any] = torch.load(folder / f"{number}.pt", map_location="cpu", weights_only=False)
    return content


def _exact(reference: Path | None, number: int) -> dict[str, Any]:
    """The step in double precision; nothing where it was not computed so from end to end."""
    if reference is None or not (reference / f"{number}.pt").exists():
        return {}
    content = _load(reference, number)
    return {} if content["gaps"] else content


def _tensors(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content.get("tensors") or content.get("digests", {})
    return found


def _names(content: Mapping[str, Any]) -> set[str]:
    outputs = (f"output {number}{path}" for number, paths in enumerate(content["outputs"]) for path in paths)
    return {*_tensors(content), *outputs}


def _values(
    old: Mapping[str, Any], new: Mapping[str, Any], exact: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, both values and the double precision one, if there is any, of all that both runs have."""
    import torch

    for number, (a, b) in enumerate(zip(old["losses"], new["losses"], strict=False)):
        yield f"loss {number}", torch.tensor(a), torch.tensor(b), _item(exact.get("losses", ()), number)
    for number, (outputs, others) in enumerate(zip(old["outputs"], new["outputs"], strict=False)):
        for path in outputs.keys() & others.keys():
            yield f"output {number}{path}", outputs[path], others[path], None
    known, others = _tensors(old), _tensors(new)
    for name in known.keys() & others.keys():
        yield name, known[name], others[name], _tensors(exact).get(name)


def _item(values: Sequence[float], number: int) -> Any:
    import torch

    return torch.tensor(values[number], dtype=torch.float64) if number < len(values) else None


def _difference(step: int, name: str, before: Any, after: Any, exact: Any) -> Difference | None:
    import torch

    if before.shape != after.shape or before.dtype != after.dtype:
        return Difference(step, name, math.inf, is_close=False)
    if torch.equal(before, after) or bool(((before == after) | (before.isnan() & after.isnan())).all()):
        return None
    is_close = _is_close(before, after)
    scale = before.double().square().mean().sqrt().item()
    if exact is None or not torch.is_tensor(exact):
        return Difference(step, name, _error(after, before, scale), is_close)
    errors = (_error(each, exact, scale) for each in (before, after))
    return Difference(step, name, _error(after, before, scale), is_close, *errors)


def _error(value: Any, other: Any, scale: float) -> float:
    error = (value.double() - other.double()).square().mean().sqrt().item()
    return float(error / scale) if scale else float(error)


def _is_close(before: Any, after: Any) -> bool:
    from torch.testing import assert_close

    try:
        assert_close(after, before, equal_nan=True)
    except AssertionError:
        return False
    return True
