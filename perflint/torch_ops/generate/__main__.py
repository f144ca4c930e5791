"""Entry point of `python -m perflint.torch_ops.generate`."""

from __future__ import annotations

import importlib

from perflint import torch_ops
from perflint.torch_ops.generate.table import as_text, build

if __name__ == "__main__":
    torch_ops.PATH.write_text(as_text(build(importlib.import_module("torch"))), encoding="utf-8")
