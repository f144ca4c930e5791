"""Digests the code that makes results, perflint's own and its rules', so that no other code's results are used."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from perflint.rule import Rule

_SUFFIXES = (".py", ".json", ".so", ".pyd")
_LIBRARIES = ("libcst",)  # its version shapes the code of some fixes


def source_digest(rules: Sequence[Rule]) -> bytes:
    """A digest of every source file of perflint and of the packages that `rules` come from."""
    digest = blake2b(digest_size=16)
    for file in sorted({*_files(_folders(rules)), *_library_versions()}):
        digest.update(f"\0{Path(file).name}\0".encode())
        digest.update(Path(file).read_bytes())
    return digest.digest()


def _folders(rules: Sequence[Rule]) -> set[str]:
    """The folders of the outermost packages, and those of the rules' modules, which may lie outside of these."""
    folders = {str(Path(__file__).parent)}
    for rule in rules:
        module = sys.modules[type(rule).__module__]
        package, _, rest = module.__name__.partition(".")
        if rest and module.__file__:
            folders.update(sys.modules[package].__path__)
            folders.add(str(Path(module.__file__).parent))
    return folders


def _files(folders: Iterable[str]) -> Iterator[str]:
    for top in folders:
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if name != "__pycache__"]
            for name in names:
                if name.endswith(_SUFFIXES):
                    yield f"{folder}{os.sep}{name}"


def _library_versions() -> Iterator[str]:
    for library in _LIBRARIES:
        spec = find_spec(library)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            version = Path(folder) / "_version.py"
            if version.exists():
                yield str(version)
