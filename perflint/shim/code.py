"""Provides the compiled code of patched files, from a cache."""

from __future__ import annotations

import marshal
import sys
from contextlib import suppress
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from perflint.shim import store
from perflint.shim.plan import PatchedFile


def code_of(file: PatchedFile, filename: str, folder: Path) -> CodeType:
    """The code of `file`, compiled once, and remembered in `folder`; raises what compiling raises."""
    kind = f"{filename}\0{sys.flags.optimize}".encode("utf-8", "surrogatepass") + MAGIC_NUMBER
    known = folder / f"{file.digest}-{blake2b(kind, digest_size=8).hexdigest()}.code"
    with suppress(OSError, ValueError, EOFError, TypeError):
        return _checked(marshal.loads(store.read(known)))
    from perflint.shim.compiling import compiled  # here: few processes compile anything

    code = compiled(file, filename)
    with suppress(OSError):
        store.write(known, marshal.dumps(code))
    return code


def _checked(code: object) -> CodeType:
    if not isinstance(code, CodeType):
        raise ValueError("it holds no code")
    return code
