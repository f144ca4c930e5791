"""The greedy decoder in the form that torch.jit.script takes; without future annotations, which it can't read."""

from typing import List, Tuple  # noqa: UP035

import torch
from torch import Tensor, nn


class ScriptedGreedy(nn.Module):
    """`greedy` over the modules of an LstmDecoder."""

    def __init__(self, embed: nn.Module, lstm: nn.Module, out: nn.Module) -> None:
        super().__init__()
        self.embed, self.lstm, self.out = embed, lstm, out

    def forward(self, token: Tensor, h: Tensor, c: Tensor, steps: int) -> Tensor:
        """(B,) start tokens to (B, steps) tokens."""
        tokens: List[Tensor] = []  # noqa: UP006
        state: Tuple[Tensor, Tensor] = (h, c)  # noqa: UP006
        for _ in range(steps):
            hidden, state = self.lstm(self.embed(token).unsqueeze(1), state)
            token = self.out(hidden.squeeze(1)).argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)
