"""Hashes the code that produces results, perflint's own and its rules', to invalidate caches."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from perflint.engine.rule import Rule

SUFFIXES = (".py", ".json", ".so", ".pyd")


def source_digest(rules: Sequence[Rule]) -> bytes:
    """A digest of every source file of perflint and of the packages that `rules` come from."""
    digest = blake2b(digest_size=16)
    for file in sorted(set(_files(source_folders(rules)))):
        digest.update(f"\0{Path(file).name}\0".encode())
        digest.update(Path(file).read_bytes())
    return digest.digest()


def source_folders(rules: Sequence[Rule]) -> set[str]:
    """The folders of the outermost packages, and those of the rules' modules, which may lie outside of these."""
    folders = {str(Path(__file__).parents[1])}
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
                if name.endswith(SUFFIXES):
                    yield f"{folder}{os.sep}{name}"
