"""Rules out, from a file's text alone, the rules that cannot fire in it: cheaply and soundly."""

from __future__ import annotations

from collections.abc import Sequence

from perflint.engine.rule import Rule

TORCH_MARKS = (
    # A program that uses torch names it, or a library that wraps it, or does what is done to its modules and tensors.
    *("torch", "lightning", "accelerate", "transformers", "diffusers", "timm", "ignite", "fastai", "monai", "cuda"),
    *("backward", "zero_grad", "no_grad", "state_dict", "DataLoader", "dataloader", "num_workers", "detach", "nn."),
)


def may_use_torch(text: str) -> bool:
    """Is there anything of torch in `text`?"""
    return any(mark in text for mark in TORCH_MARKS)


def can_fire(rules: Sequence[Rule], text: str) -> tuple[Rule, ...]:
    """Those of `rules` that may find something in `text`."""
    if not may_use_torch(text):
        return ()
    return tuple(rule for rule in rules if not rule.triggers or any(trigger in text for trigger in rule.triggers))
