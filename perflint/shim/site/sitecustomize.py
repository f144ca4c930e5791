"""Brings a child process into its parent's run, then runs the `sitecustomize` that this one hides."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_here = str(Path(__file__).parent)
sys.path[:] = [path for path in sys.path if path != _here]
_spec = PathFinder.find_spec("sitecustomize", sys.path)
try:
    from perflint.shim.joining import join
except (ImportError, SyntaxError, TypeError):  # another environment's Python, or one that is too old
    pass
else:
    join()
if _spec is not None and _spec.loader is not None:
    sys.modules["sitecustomize"] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
