"""What a step would be without rounding is known of fused attention with dropout and fused optimizers, too."""

from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn

from perflint.verify.agent.reference import Reference, prefer_plain_kernels


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.drop = nn.Linear(64, 192), nn.Linear(64, 64), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.view(8, 32, 4, 16).transpose(1, 2) for each in self.into(x).split(64, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
        mixed: Tensor = x + self.drop(self.out(y.transpose(1, 2).reshape(8, 32, 64)))
        return mixed


def losses(steps: int, reference: Reference | None) -> tuple[list[float], list[float]]:
    """The losses of some steps, and what they are in double precision where there is a reference."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Attention() for _ in range(3)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.randn(steps, 8, 32, 64, device="cuda")
    own, exact = [], []
    for x in data:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), x.flip(2))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        own.append(loss.detach().item())
        if reference:
            exact.append(reference.value(loss.detach()).item())
    return own, exact


def test_attention_with_dropout_and_fused_steps_have_a_reference_with_the_same_masks() -> None:
    plain, _ = losses(5, None)
    prefer_plain_kernels()
    with Reference() as reference:
        own, exact = losses(5, reference)
        assert not reference.gaps
    assert own == pytest.approx(plain, rel=1e-3)
    assert exact == pytest.approx(own, rel=3e-3) and exact != own
