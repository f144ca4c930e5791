"""Generated tests try the same programs in every run; `pytest --hypothesis-profile=default` tries others."""

import os
import sys

from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # each worker of xdist has one core
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # a thousand processes import perflint

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
