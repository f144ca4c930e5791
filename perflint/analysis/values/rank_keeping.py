"""Recognises modules that keep the rank of their input."""

from __future__ import annotations

import re

from perflint.analysis.values.values import Kind, Value

_KEEPING = re.compile(
    r"torch\.nn\.(Lazy)?(Conv(Transpose)?[123]d|BatchNorm[123]d|InstanceNorm[123]d|LayerNorm|GroupNorm|SyncBatchNorm"
    r"|\w*Dropout[123]?d?|(Adaptive)?(Max|Avg)Pool[123]d|Linear|Identity|Upsample|(Leaky|P|R)?ReLU6?|[CGS]?ELU|GELU|SiLU"
    r"|Mish|Tanh|Sigmoid|Hard\w+|Soft(max|plus|sign)|LogSoftmax)"
)


def keeps_rank(module: Value) -> bool:
    """Is `module` surely a layer, or a row of layers, that keeps the number of axes?"""
    if module.kind is not Kind.MODULE or not module.sure:
        return False
    if module.name == "torch.nn.Sequential":
        return bool(module.items) and all(keeps_rank(layer) for layer in module.items or ())
    return bool(_KEEPING.fullmatch(module.name))
