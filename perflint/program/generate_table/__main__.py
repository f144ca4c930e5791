"""Entry point of `python -m perflint.program.generate_table`."""

from __future__ import annotations

import importlib

from perflint.program import torch_table
from perflint.program.generate_table.table import as_text, build

if __name__ == "__main__":
    torch_table.PATH.write_text(as_text(build(importlib.import_module("torch"))), encoding="utf-8")
