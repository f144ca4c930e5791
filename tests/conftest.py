"""Generated tests try the same programs in every run; `pytest --hypothesis-profile=default` tries others.

What keeps a run short: programs of tests/shim, tests/verify and of main guards are forks of a process that has imported
torch (tests/forks). New interpreters are left where it is about one: workers that are spawned, options of Python,
`verify` that is interrupted, a program without numpy, the wheel and the hooks. Torch computes on one core.
"""

import os
import sys

from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # each worker of xdist has one core
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # a thousand processes import perflint

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
