"""Starts the user's program under orders to be profiled: `python -m perflint.profile.agent.start`."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

from perflint.profile.agent.join import join
from perflint.profile.record import ORDERS, Orders
from perflint.shim import launch
from perflint.shim.plan import load
from perflint.shim.session import RUN, Shim, environment, plan_of
from perflint.verify.agent.cover import cover, outermost


def main(kind: str, name: str, *arguments: str) -> None:
    """Run the program in this process, unpatched."""
    run = Path(os.environ[RUN])
    orders: Orders = pickle.loads((run / ORDERS).read_bytes())
    if orders.covers:
        with suppress(OSError):  # files are put back then
            cover(run, outermost(orders.roots))
    os.environ.update(environment(run))
    shim = Shim(load(plan_of(run)), run)
    join()
    if kind == "module":
        launch.run_module(name, arguments)
    else:
        launch.run_script(name, arguments, shim)


if __name__ == "__main__":
    main(*sys.argv[1:])
