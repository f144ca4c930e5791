"""Joins this process to the run that its environment names."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from perflint.shim import fault, mains
from perflint.shim.plan import load
from perflint.shim.session import FIRST, OFF, RUN, Shim, first_name, plan_of

ALSO = "PERFLINT_ALSO"  # names a module whose `join` is called in each process that joins


def join() -> None:
    """Join the run that the environment names; a process that can't does without, and says so once."""
    run = os.environ.get(RUN)
    if not run or os.environ.get(OFF) == "1" or not os.path.isdir(run):  # noqa: PTH112
        return  # without its folder, a run is over
    is_first = os.environ.get(FIRST) == str(os.getpid())
    try:
        shim = Shim(load(plan_of(Path(run))), Path(run), first_name() if is_first else "")
        shim.install()
        mains.take(shim)
        if is_first:
            from perflint.shim.running import go_on

            go_on(shim, Path(run))
        if also := os.environ.get(ALSO):
            import_module(also).join()
    except Exception as error:
        fault.tell(f"leaves this process unpatched: {error!r}")
