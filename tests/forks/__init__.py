"""Runs Python programs as forks of a process that has imported torch, for an import takes two seconds of a core.

A fork has no module loaded that a new interpreter would not have, but is passed those that are there as it imports
them. It has arguments, environment (also for those who look from outside), working folder, pipes and session of its
own, and ends as Python does; its seed of hashes is 0. What can't be had so is a new process: options of the
interpreter, variables that it or a library reads as it starts, folders and archives, and modules that stand before
torch or numpy on the path. `Popen` and `run` are used as those of the module subprocess.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Any

__all__ = ["DEVNULL", "PIPE", "Popen", "run"]

_AT_START = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "LD_", "LC_", "LANG", "TORCH_")
_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "OMP_WAIT_POLICY")  # read, or of no consequence
_SERVER = "FORKS"  # the variable that holds the address of the server
_ROOM = 65_536  # bytes that the environment of a fork may have


class Popen(subprocess.Popen[Any]):
    """A process as subprocess.Popen starts it; a Python program is a fork where that makes no difference."""

    _status: socket.socket | None = None

    def _execute_child(self, args: Any, *others: Any) -> None:
        executable, preexec, _, fds, cwd, env, _, _, shell, stdin, _, _, stdout, _, stderr, *identity = others
        environment, folder = {**(os.environ if env is None else env)}, os.path.realpath(cwd or ".")
        plain = not (executable or preexec or fds or shell) and not isinstance(args, str | os.PathLike)
        if not plain or not _can_be_forked([*map(os.fspath, args)], folder, environment):
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        order = [*map(os.fspath, args)][1:], folder, environment, identity[5]
        self._status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status.connect(_server())
        pipes = [usual if pipe == -1 else pipe for usual, pipe in enumerate((stdin, stdout, stderr))]
        socket.send_fds(self._status, [json.dumps(order).encode()], pipes)
        self.pid = int(self._status.recv(64))
        self._child_created = True
        self._close_pipe_fds(*others[9:15])  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc,no-any-return]
        return self._code(0.0) if self.returncode is None else self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._code(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _code(self, timeout: float | None) -> int | None:
        assert self._status is not None
        self._status.settimeout(timeout)
        try:
            self.returncode = int(self._status.recv(64))
        except (BlockingIOError, TimeoutError):
            return None
        self._status.close()
        return self.returncode


def run(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> CompletedProcess[str]:
    """Run a program to its end, and give its exit code and what it has printed, as text."""
    with Popen(command, cwd=cwd, env=env, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(process.args, process.returncode, output, errors)


def _can_be_forked(command: list[str], folder: str, environment: Mapping[str, str]) -> bool:
    if command[0] != sys.executable or len(command) == 1 or (command[1][0] == "-" and command[1] not in ("-c", "-m")):
        return False
    names = {name for name in {*environment, *os.environ} if name.startswith(_AT_START)} - {*_LATER}
    if any(environment.get(name) != os.environ.get(name) for name in names):
        return False
    script = Path(folder, command[1])
    if command[1][0] != "-" and (script.suffix != ".py" or not script.is_file()):
        return False
    paths = [folder, str(script.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return Path(folder).is_dir() and not any(
        Path(path, f"{name}.py").exists() for path in paths if path for name in ("numpy", "torch")
    )


_servers: list[subprocess.Popen[bytes]] = []


@cache
def _server() -> str:
    """The address of this process's server, which ends when this process does; forks have the one that forked them."""
    if _SERVER in os.environ:
        return os.environ[_SERVER]
    server = Path(__file__).with_name("server.py")
    address = str(Path(tempfile.mkdtemp(prefix="forks-"), "server"))
    environment = {name: value for name, value in os.environ.items() if name not in _LATER}
    process = subprocess.Popen(
        [sys.executable, str(server), address],
        env={**environment, "PYTHONHASHSEED": "0", "ROOM": " " * _ROOM},
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.read(1), "there is no server of forks"
    _servers.append(process)
    os.environ[_SERVER] = address
    atexit.register(process.communicate)  # which ends it
    return address
