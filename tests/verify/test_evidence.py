"""What a program never changes is the same whatever it computes, and counts for nothing."""

from __future__ import annotations

import torch

from perflint.verify.evidence import Evidence


def test_of_what_is_kept_only_what_changes_counts() -> None:
    evidence = Evidence()
    for _ in range(3):
        evidence.add("buffer 0.running_mean", torch.zeros(4))
        evidence.add("weight 0.frozen", "the same fingerprint")
        evidence.add("output 0=None", torch.empty(0))
    assert evidence.values == 0
    for step in range(3):
        evidence.add("parameter 0.0", torch.full((4,), float(step)))
        evidence.add("optimizer 0.0.step", f"digest {step}")
        evidence.add("output 0.mean", torch.ones(()))  # a result is one, also if it comes again
    assert evidence.values == 9
