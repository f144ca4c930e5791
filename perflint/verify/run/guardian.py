"""Ends programs that the verifier left behind when it was killed itself, and puts back the files that they changed.

Started as `python -m perflint.verify.run.guardian FOLDER`.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from perflint.verify.agent.journal import put_back
from perflint.verify.run.tree import kill

_JOURNAL = "journal"
_LONGEST = 60  # characters of a folder: the paths of sockets in it have 104 at most


class Guardian:
    """A process that outlives this one, ends what it has started, and removes the `folder` that all of it may use.

    `journal` is where programs keep the files that they change.
    """

    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        self.folder = Path(usual if len(usual) <= _LONGEST else "/tmp") / f"perflint-{secrets.token_hex(6)}"
        self.journal = self.folder / _JOURNAL
        command = [sys.executable, "-m", __spec__.name, str(self.folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)
        self.folder.mkdir(mode=0o700)  # now that there is somebody to remove it
        self.journal.mkdir()

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


def main(folder: str) -> None:
    """Wait until the verifier is gone, in whichever way, and clear up behind it."""
    runs = [line.rstrip("\n") for line in sys.stdin]
    for run in runs:
        kill(run)
    put_back(Path(folder) / _JOURNAL)
    for each in (*runs, folder):
        shutil.rmtree(each, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
