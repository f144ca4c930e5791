"""Ends programs that the verifier left behind when it was killed itself: `python -m perflint.verify.guardian`."""

from __future__ import annotations

import shutil
import subprocess
import sys

from perflint.verify.tree import kill


class Guardian:
    """A process that outlives this one and ends what it has started."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, start_new_session=True, text=True
        )

    def watch(self, run: str) -> None:
        """Have the run whose folder is `run` ended, should this process die."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{run}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End what still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Wait until the verifier is gone, in whichever way, and clear up behind it."""
    for run in [line.rstrip("\n") for line in sys.stdin]:
        kill(run)
        shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    main()
