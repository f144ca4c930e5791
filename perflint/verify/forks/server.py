"""Imports libraries once, and forks for each order at a socket: `python server.py ADDRESS PATH LIBRARY ...`."""

from __future__ import annotations

import sys

_BARE = {*sys.modules}  # what a new interpreter has loaded

import atexit  # noqa: E402
import builtins  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import site  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import weakref  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Collection, Container, Mapping, Sequence  # noqa: E402
from contextlib import suppress  # noqa: E402
from importlib import import_module  # noqa: E402
from importlib.machinery import BuiltinImporter, ModuleSpec, PathFinder  # noqa: E402
from importlib.util import resolve_name  # noqa: E402
from pathlib import Path  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

_LONGEST = 1 << 18  # bytes of an order
_USUAL = 3  # of the libraries: numpy, torch, and what is imported by whoever makes an optimizer


class Order(NamedTuple):
    """What a fork shall be: arguments after the interpreter, folder, environment, whether it leads a session."""

    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    session: bool


class Loaded:
    """Hands out the modules imported here, to a program that has none yet."""

    def __init__(self, libraries: Sequence[str]) -> None:
        self._asked = defaultdict[str, dict[str, None]](dict)  # the modules that come with each
        for number, name in enumerate(libraries):
            before = {*sys.modules} if number > 1 else _BARE
            asked = _imported(name)
            module = name if name in sys.modules else name.rpartition(".")[0]
            self._asked[module].update(dict.fromkeys(each for each in sys.modules if each not in before))
            for importer, names in asked.items():
                self._asked[importer or module].update(names)
        self._asked["json"] |= dict.fromkeys(("json.decoder", "json.scanner", "json.encoder"))  # C looks for its error
        self._modules = {name: module for name, module in sys.modules.items() if name not in _BARE}
        self._kinds = {name: type(module) for name, module in self._modules.items()}
        specs = {name: getattr(module, "__spec__", None) for name, module in self._modules.items()}
        self._found = {name: (spec, spec and spec.loader) for name, spec in specs.items()}
        usual = (name for name in libraries if name in self._modules)
        self._all_asked = {name: {each: self._modules[each] for each in self._new(name, ())} for name in usual}

    def hide(self) -> None:
        """Do once what is the same for all forks, which would copy each page that they change."""
        for name in self._modules:
            del sys.modules[name]
        for each in [*weakref.finalize._registry]:  # type: ignore[attr-defined]
            each.atexit = False  # what libraries take apart at their end is no fork's, and takes half of its time
        sys.path_importer_cache.clear()

    def begin(self, program: str) -> None:
        """Hand out modules from now on, except the one run as the program, which Python itself finds."""
        if torch := self._modules.get("torch"):
            torch.default_generator.seed()
        if random := self._modules.get("numpy.random"):
            random.seed()
        is_package = hasattr(self._modules.get(program), "__path__")
        self._modules.pop(f"{program}.__main__" if is_package else program, None)
        sys.meta_path.insert(0, self)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._modules))
        c = ctypes.CDLL(None)
        c.on_exit(c._exit, None)
        atexit.register(self.end)

    def end(self) -> None:
        gc.freeze()
        for name in self._modules:
            sys.modules.pop(name, None)

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        around = name.rpartition(".")[0]
        if name not in self._modules or (around and sys.modules.get(around) is not self._modules.get(around)):
            return None  # also of what is in another package of the same name
        spec, _ = self._found[name]
        if path is None and spec is not None and spec.has_location:
            usual = PathFinder.find_spec(name)
            if usual is None or usual.origin != spec.origin:
                return usual
        found = ModuleSpec(name, Handed(self, name), origin=spec and spec.origin)  # type: ignore[arg-type]
        found.submodule_search_locations = spec and spec.submodule_search_locations
        return found

    def begun(self, name: str) -> ModuleType:
        """The module as one whose code has not run yet, which may change its class."""
        module = self._modules[name]
        if issubclass(self._kinds[name], ModuleType):
            object.__setattr__(module, "__class__", ModuleType)  # whatever it makes of attributes itself
        return module

    def done(self, name: str) -> None:
        """Leave the module as its first import left it, and bring along what that imported."""
        module, (spec, loader) = self._modules[name], self._found[name]
        if spec is not None:
            spec.loader = loader
            vars(module).update(__spec__=spec, __loader__=loader)
        if type(module) is not self._kinds[name]:
            object.__setattr__(module, "__class__", self._kinds[name])
        self._bring(name)

    def _new(self, name: str, loaded: Container[str]) -> dict[str, None]:
        new: dict[str, None] = {}
        pending = [name]
        for module in pending:
            asked = (each for each in self._asked.get(module, ()) if each in self._modules)
            pending += (found := [each for each in asked if each not in loaded and each not in new])
            new.update(dict.fromkeys(found))
        return new

    def _bring(self, name: str) -> None:
        known = self._all_asked.get(name, {})
        is_usual = known and all(sys.modules.get(each, module) is module for each, module in known.items())
        new: Collection[str] = [each for each in known if each not in sys.modules and each in self._modules]
        if not is_usual:
            new = self._new(name, sys.modules)
        sys.modules.update({each: self._modules[each] for each in new})
        for finder in sys.meta_path[: sys.meta_path.index(self)]:
            watched = getattr(finder, "watched", new)  # of ours, which leaves all others alone
            for each in (each for each in new if each in watched):
                spec = finder.find_spec(each, [])
                if spec is not None and spec.loader is not None and not isinstance(spec.loader, Handed):
                    spec.loader.exec_module(self.begun(each))


def _imported(library: str) -> dict[str, dict[str, None]]:
    asked, usual = defaultdict[str, dict[str, None]](dict), builtins.__import__

    def note(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
        found = usual(name, globals, locals, fromlist, level)
        spec = (globals or {}).get("__spec__")
        whole = resolve_name("." * level + name, spec.parent) if spec else name
        parts = whole.split(".")
        each = (".".join(parts[: at + 1]) for at in range(len(parts)))
        importer = spec.name if spec and getattr(spec, "_initializing", False) else ""
        asked[importer].update(dict.fromkeys((*each, *(f"{whole}.{part}" for part in fromlist or ()))))
        return found

    builtins.__import__ = note
    try:
        package, _, name = library.rpartition(".")
        if not package or not hasattr(import_module(package), name):  # asking has a lazy package load what is behind it
            import_module(library)
    except Exception:  # the program will see it
        asked.clear()
    finally:
        builtins.__import__ = usual
    return asked


def is_safe() -> bool:
    """Whether a fork has all of this process: no threads but such as end before a fork, and no GPU."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    threads = [*Path("/proc/self/task").iterdir()]
    start, end = _place_of_environment()
    opened = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened.append(str(each.readlink()))
    return len(threads) == 1 and start < end and not any(each.startswith("/dev/nvidia") for each in opened)


class Handed:
    def __init__(self, loaded: Loaded, name: str) -> None:
        self._loaded, self._name = loaded, name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._loaded.begun(self._name)

    def exec_module(self, module: ModuleType) -> None:
        self._loaded.done(self._name)


def serve(address: str) -> tuple[Order, list[int]]:
    """Fork for each order until standard input ends; return in the forks, with what they shall be."""
    customers: dict[int, socket.socket] = {}  # who waits for the end of each fork
    bell, ringing = os.pipe()
    os.set_blocking(ringing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(ringing)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        with suppress(BrokenPipeError):  # whoever has started this is gone, and so its input has ended
            os.write(1, b"!")  # ready
        waits: list[Any] = [listener, bell, 0]
        while {listener, bell} & {*(ready := select.select(waits, [], [])[0])}:
            if bell in ready:
                os.read(bell, _LONGEST)
                _tell(customers)
            if listener in ready:
                customer, _ = listener.accept()
                if not (fork := os.fork()):
                    break
                customers[fork] = customer
        else:
            shutil.rmtree(Path(address).parent, ignore_errors=True)
            os._exit(0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(bell)
    os.close(ringing)
    for each in customers.values():
        each.close()
    return _taken(customer)


def _tell(customers: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if customer := customers.pop(ended[0], None):
                with customer, suppress(OSError):  # nobody may wait for it any more
                    customer.send(b"=%d" % os.waitstatus_to_exitcode(ended[1]))


def _taken(customer: socket.socket) -> tuple[Order, list[int]]:
    with customer:
        data, ((_, _, streams),), _, _ = customer.recvmsg(_LONGEST, socket.CMSG_LEN(3 * struct.calcsize("i")))
        with suppress(BrokenPipeError):
            customer.send(str(os.getpid()).encode())
    return Order(*json.loads(data)), [*struct.unpack("3i", streams)]


def become(order: Order, streams: Sequence[int]) -> None:
    if order.session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    _show(order.environment)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv[1:] = order.arguments
    sys.path[:0] = _folders(os.environ.get("PYTHONPATH", ""))
    site.removeduppaths()
    sys.argv[:] = [order.arguments[0], *order.arguments[1 if order.arguments[0][0] != "-" else 2 :]]
    gc.unfreeze()  # a collection takes the time that it takes in a process that has imported all of this itself
    LOADED.begin(order.arguments[1] if order.arguments[0] == "-m" else "")
    site.execsitecustomize()


def _folders(path: str) -> list[str]:
    return [str(Path(folder).absolute()) for folder in path.split(os.pathsep) if folder]


def _show(environment: Mapping[str, str]) -> None:
    start, end = _place_of_environment()
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)


def _place_of_environment() -> tuple[int, int]:
    start, end = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[47:49]
    return int(start), int(end)


def start(arguments: Sequence[str]) -> int:
    first, python = arguments[0], ctypes.pythonapi
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=sys.modules["builtins"], __loader__=BuiltinImporter)
    vars(main).update({} if first == "-c" or sys.version_info >= (3, 14) else {"__annotations__": {}})
    if first == "-c":
        sys.path.insert(0, "")
        failed = python.PyRun_SimpleString(f"{arguments[1]}\n".encode())
    elif first == "-m":
        sys.path.insert(0, str(Path.cwd()))
        failed = python.PyRun_SimpleString(f"__import__('runpy')._run_module_as_main({arguments[1]!r})".encode())
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        opened = ctypes.CDLL(None).fopen
        opened.restype = ctypes.c_void_p
        path = os.fsencode(Path.cwd() / first)
        failed = python.PyRun_SimpleFileExFlags(ctypes.c_void_p(opened(path, b"rb")), path, 1, None)
    if failed and sys.last_type is KeyboardInterrupt:
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 1 if failed else 0


if __name__ == "__main__":
    socket_path, python_path, *wanted = sys.argv[1:]
    sys.path[:1] = FOLDERS = _folders(python_path)  # libraries may ask as they are imported whether others are there
    LOADED = Loaded(wanted)
    if not is_safe():
        if len(wanted) == _USUAL:
            shutil.rmtree(Path(socket_path).parent, ignore_errors=True)
            sys.exit()
        os.execv(sys.executable, [sys.executable, __file__, socket_path, python_path, *wanted[:_USUAL]])
    for folder in FOLDERS:
        with suppress(ValueError):  # a library took it off
            sys.path.remove(folder)
    LOADED.hide()
    gc.freeze()  # and leave the pages as they are
    ordered, ends = serve(socket_path)
    become(ordered, ends)
    sys.exit(start(ordered.arguments))
