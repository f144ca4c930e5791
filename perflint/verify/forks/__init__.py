"""Starts Python programs as forks of a process that has imported torch, for an import takes seconds of a core.

A fork has loaded no module that a new interpreter would not have; those imported here are handed out as it imports
them. It has its own arguments, environment (also seen from outside), working folder, pipes and session, and ends as
Python does; its hash seed is 0. What can't be had so is a new process: interpreter options, variables read at start,
folders and archives, modules that shadow torch or numpy on the path, and everything where a fork would lose threads or
a GPU that an import has touched.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from select import select
from typing import Any

from perflint.documents.lines import at_line
from perflint.project.closure import Closure, is_installed
from perflint.syntax.walk import text_of

SERVER = "PERFLINT_FORKS"  # the variable that holds the address of a server, for those who shall not have their own
AT_START = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "LC_", "LANG", "TORCH_", "PYTORCH_")
_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED")  # read, or of no consequence
_WAITS = "OMP_WAIT_POLICY"  # of no consequence where there is one thread
_USUAL = ("numpy", "torch", "torch._dynamo")  # the last is imported by whoever makes an optimizer
_ROOM = 65_536  # bytes that the environment of a fork may have
_PATIENCE = 60.0  # seconds for all imports
_READY = b"!"
_Kind = tuple[tuple[str, str], ...]
_OURS = ("perflint", "numpy", "torch")  # these are imported anyway
_STARTS = ("run", "call", "check_call", "check_output", "Popen", "system", "popen")
_WRITERS_IN_C = frozenset(
    ("apsw", "av", "ctypes", "duckdb", "imageio", "leveldb", "lmdb", "moviepy", "netCDF4", "plyvel", "tables")
)
_WRITERS = ("setdefault", "update", "pop", "clear")


class Popen(subprocess.Popen[Any]):
    """subprocess.Popen, but a Python program is a fork where that makes no difference.

    `libraries` are imported before, besides torch; None for a process that must not be a fork.
    """

    _status: socket.socket | None = None

    def __init__(self, *given: Any, libraries: Sequence[str] | None = (), **named: Any) -> None:
        self._libraries = libraries
        super().__init__(*given, **named)

    def _execute_child(self, args: Any, *others: Any) -> None:
        executable, preexec, _, fds, cwd, env, _, _, shell, stdin, _, _, stdout, _, stderr, *identity = others
        environment, folder = {**(os.environ if env is None else env)}, os.path.realpath(cwd or ".")
        plain = not (executable or preexec or fds or shell) and not isinstance(args, str | os.PathLike)
        if plain and _can_be_forked([*map(os.fspath, args)], folder, environment):
            order = [*map(os.fspath, args)][1:], folder, environment, identity[5]
            pipes = [usual if pipe == -1 else pipe for usual, pipe in enumerate((stdin, stdout, stderr))]
            if place := address(environment, self._libraries):
                self._order(place, json.dumps(order).encode(), pipes)
        if self._status is None:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        self._child_created = True
        self._close_pipe_fds(*others[9:15])  # type: ignore[attr-defined]

    def _order(self, place: str, order: bytes, pipes: Sequence[int]) -> None:
        status = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            status.connect(place)
            socket.send_fds(status, [order], pipes)
            self.pid = int(status.recv(64))
        except (OSError, ValueError):
            status.close()
        else:
            self._status = status

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
            self.returncode = int(self._status.recv(64)[1:] or -signal.SIGKILL)  # nobody is left to tell
        except (BlockingIOError, TimeoutError):
            return None
        self._status.close()
        return self.returncode


def _can_be_forked(command: list[str], folder: str, environment: Mapping[str, str]) -> bool:
    if command[0] != sys.executable or len(command) == 1:
        return False
    if command[1][0] == "-" and command[1] not in ("-c", "-m"):
        return False
    script = Path(folder, command[1])
    if command[1][0] != "-" and (script.suffix != ".py" or not script.is_file()):
        return False
    if sum(len(os.fsencode(f"{name}={value}")) + 1 for name, value in environment.items()) > _ROOM:
        return False
    paths = [folder, str(script.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    return Path(folder).is_dir() and not any(
        Path(path, f"{name}.py").exists() for path in paths if path for name in ("numpy", "torch")
    )


def begin(environment: Mapping[str, str], libraries: Sequence[str] | None = ()) -> None:
    """Start the server for this environment, where there may be forks, without waiting for it."""
    if libraries is not None and sys.platform == "linux" and not os.environ.get(SERVER):
        _served(_kind(environment), tuple(libraries))


def address(environment: Mapping[str, str], libraries: Sequence[str] | None = ()) -> str:
    """The address of the server for this environment, once ready; "" if there is none.

    Where an import rules forks out, by starting threads say, that of a server with torch alone.
    """
    if libraries is None or sys.platform != "linux":
        return ""
    if known := os.environ.get(SERVER):
        return known if _kind(environment) == _kind(os.environ) else ""
    kind = _kind(environment)
    return _served(kind, tuple(libraries)).address or _served(kind, ()).address


def _kind(environment: Mapping[str, str]) -> _Kind:
    names = {name for name in environment if name.startswith(AT_START)} - {*_LATER}
    if environment.get("OMP_NUM_THREADS") == "1":
        names -= {_WAITS}
    return tuple((name, environment[name]) for name in sorted(names))


class _Server:
    def __init__(self, kind: _Kind, libraries: Sequence[str]) -> None:
        self._socket = Path(tempfile.mkdtemp(prefix="perflint-forks-"), "server")
        server, path = str(Path(__file__).with_name("server.py")), os.environ.get("PYTHONPATH", "")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(AT_START)}
        self._process = subprocess.Popen(
            [sys.executable, server, str(self._socket), path, *_USUAL, *libraries],
            env={**rest, **dict(kind), "PYTHONHASHSEED": "0", "ROOM": " " * _ROOM},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt is for those who use it
        )
        atexit.register(self._end)

    @cached_property
    def address(self) -> str:
        output = self._process.stdout
        assert output is not None
        ready = select([output], [], [], _PATIENCE)[0]
        return str(self._socket) if ready and output.read(1) == _READY else ""

    def _end(self) -> None:
        with suppress(OSError):
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._socket.parent, ignore_errors=True)


_served = cache(_Server)


class Notes:
    """What a walk over a program's modules notes.

    `changed` are environment variables, "" for unknown ones. `others` are the places from where on files may be written
    otherwise than by Python's functions: by other programs, or by libraries that write in C.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.others: list[str] = []

    def visit(self, path: Path, text: str, tree: ast.Module) -> None:
        if "env" in text:
            self.changed |= {*_changed(tree)}
        if "subprocess" in text or "os." in text:
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _starts(node.func))
            own = (call for call in calls if "executable" not in ast.dump(call))
            self.others += (at_line(str(path), call.lineno) for call in own)
        if any(name in text for name in _WRITERS_IN_C):
            nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
            self.others += (at_line(str(path), node.lineno) for node in nodes if _writes_in_c(node))


def libraries(closure: Closure | None, notes: Notes) -> tuple[str, ...] | None:
    """The installed modules, and names in modules that may load lazily, that a program imports unconditionally.

    Empty where the program changes variables that libraries may read; None where Python or torch read these as they
    start, or where the program isn't a file of its own.
    """
    if closure is None or any(module.imports is None for module in closure.modules):
        return None
    if any(not name or name.startswith(AT_START) for name in notes.changed):
        return None
    imports = (each for module in closure.modules for each in module.imports or ())
    always = dict.fromkeys(each.name for each in imports if each.always and not each.files)
    return () if notes.changed else tuple(name for name in always if _is_installed(name) and not name.endswith("*"))


def _writes_in_c(node: ast.Import | ast.ImportFrom) -> bool:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
    return any(each.partition(".")[0] in _WRITERS_IN_C for each in names)


def _starts(function: ast.expr) -> bool:
    owner = getattr(getattr(function, "value", None), "id", "")
    return owner in ("os", "subprocess") and getattr(function, "attr", "") in _STARTS


def _is_installed(name: str) -> bool:
    outermost = name.partition(".")[0]
    if outermost in sys.stdlib_module_names or outermost in _OURS:
        return False
    return is_installed(outermost)


def _changed(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_environment(node.value):
            yield text_of(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _writes(node.func):
            yield from _written(node, node.func.attr)


def _written(call: ast.Call, method: str) -> Iterator[str]:
    if method == "update":
        for given in call.args:
            yield from map(text_of, given.keys) if isinstance(given, ast.Dict) else ("",)
        yield from (each.arg or "" for each in call.keywords)
    else:
        yield text_of(call.args[0]) if call.args else ""


def _writes(function: ast.Attribute) -> bool:
    return function.attr == "putenv" or (function.attr in _WRITERS and _is_environment(function.value))


def _is_environment(node: ast.expr) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))
