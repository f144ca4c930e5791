"""Generated tests try the same few programs in every run; `pytest --hypothesis-profile=many` tries many others.

What keeps a run short: programs of tests/shim, tests/verify and of main guards are forks of a process that has imported
torch (tests/forks). New interpreters are left where it is about one: workers that are spawned, options of Python,
`verify` that is interrupted, a program without numpy, the wheel and the hooks. Torch computes on one core.
"""

import os
import sys

from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # each worker of xdist has one core
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # a thousand processes import perflint

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("repeatable", _PATIENT, derandomize=True, max_examples=40)
settings.register_profile("many", _PATIENT, max_examples=1000)
settings.load_profile("repeatable")
