"""Writes torch_table.json out of an installed torch: `python -m perflint.torch_ops.generate`.

Where each fact comes from:

- results: the type stubs that torch ships (torch/_C/_VariableFunctions.pyi, torch/_C/__init__.pyi, torch/_C/_nn.pyi,
  torch/nn/functional.pyi); for functions without a stub (torch.linalg, torch.fft, torch.special) the operators'
  schemas; for those written in Python their annotations;
- syncs: the operators' tags data_dependent_output and dynamic_output_shape; composite operators and functions in
  Python have no tags, so they are called on small tensors and the operators below them are watched (probe.py);
- pointwise, reduction, random: the tags of those names, or those of the operators below; view: alias annotations;
- names: what torch documents as aliases (functions.py);
- views, may, writes: the schemas' alias annotations; for functions in Python and operators made of others, which
  torch does not hold to them, calls whose results' memory and arguments' versions are compared (memory.py);
- dtype: calls on tensors of several dtypes which all gave the same;
- kinds of classes: their base classes (table.py).

What can't be derived is in by_hand.py, and nowhere else. Known gaps: tensor subclasses, the dtypes of
a tuple's items, waits inside CUDA's own kernels, and Python functions without annotations (they are not in the table).
"""
