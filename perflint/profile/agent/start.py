"""Starts the user's program under orders to be profiled: `python -m perflint.profile.agent.start`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perflint.profile.agent.join import join
from perflint.shim import launch
from perflint.shim.plan import load
from perflint.shim.session import RUN, Shim, environment, plan_of


def main(kind: str, name: str, *arguments: str) -> None:
    """Run the program in this process, unpatched."""
    run = Path(os.environ[RUN])
    os.environ.update(environment(run))
    shim = Shim(load(plan_of(run)), run)
    join()
    if kind == "module":
        launch.run_module(name, arguments)
    else:
        launch.run_script(name, arguments, shim)


if __name__ == "__main__":
    main(*sys.argv[1:])
