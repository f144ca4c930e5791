"""Starts the user's program patched, under orders: `python -m perflint.verify.agent.start`."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perflint.shim import launch
from perflint.shim.plan import load
from perflint.shim.session import ALSO, RUN, Shim, environment, plan_of
from perflint.verify.agent.cover import cover
from perflint.verify.messages import ORDERS, Kind


def main(kind: str, name: str, *arguments: str) -> None:
    run = Path(os.environ[RUN])
    orders = pickle.loads((run / ORDERS).read_bytes())
    if orders.cover:
        with suppress(OSError):  # files are put back then
            cover(orders.place(run), orders.cover, orders.ours)
    os.environ.update(environment(run))
    shim = Shim(load(plan_of(run)), run)
    shim.install()
    agent = importlib.import_module(os.environ[ALSO]).join()
    start = {
        Kind.SCRIPT: partial(launch.run_script, name, arguments, shim),
        Kind.MODULE: partial(launch.run_module, name, arguments),
        Kind.CALL: partial(_call_repeatedly, name, arguments, agent),
    }
    start[Kind(kind)]()


def _call_repeatedly(name: str, arguments: Sequence[str], agent: Any) -> None:
    module, _, path = name.partition(":")
    sys.path[0] = str(Path.cwd())
    sys.argv[:] = ["-m", *arguments]  # as while Python looks for a module
    spec = find_spec(module)
    sys.argv[0] = (spec and spec.origin) or module
    sys.modules["__main__"].__spec__ = None  # by which programs call themselves
    function = importlib.import_module(module)
    for attribute in path.split("."):
        function = getattr(function, attribute)
    called = agent.counted(function)
    while True:
        called()


if __name__ == "__main__":
    main(*sys.argv[1:])
