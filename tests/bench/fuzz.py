"""Feeds perflint mutated real files: nothing may crash it, whatever it is given.

    python tests/bench/fuzz.py FOLDER [--count 10000] [--seed 0] [--keep FOLDER]

Lines and tokens of the Python files below FOLDER are deleted, doubled, swapped and copied over others, files are cut
off and bytes thrown in. Every result is checked and fixed, with behaviour-level fixes too. A file may have a problem,
but not one that is ours: no internal error, no fix without end, no fix that breaks the program. Exits with 1 if there
was one; `--keep` saves the files that met it.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from perflint.documents.disk import Unreadable
from perflint.documents.document import decode
from perflint.engine.catalogue import all_rules
from perflint.engine.check import check_bytes
from perflint.engine.fix import fix_text
from perflint.engine.results import FILE_FAULTS, FileResult
from perflint.engine.rule import Options

MAX_BYTES = 60_000  # of a file that is used: of larger ones there would be fewer
_TOKEN = re.compile(rb"\w+|[^\w\s]|[ \t]+|\r?\n")
_SPICE = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\f", b"\t", b"\\\n", b"'''", b'"""', b"f'{", b"# type: ignore"),
    *(b"async ", b"await ", b"yield ", b"lambda: ", b"*", b"**", b":=", b"\xf0\x9f\x98\x80", b"\xcc\x88", b"(" * 250),
    *(b"# perflint: ignore[", b"# perflint: ignore-file\n", b"# coding: latin-1\n", b".item()", b".cpu()", b"if x:\n"),
    *(b"for _ in loader:\n", b"global x\n", b"del x\n", b"import torch as torch\n", b"from torch import *\n"),
)

Mutation = Callable[[bytes, random.Random], bytes]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """`data` after up to eight random mutations; two times in three without those that would make it no program."""
    valid = rng.random() < 2 / 3
    for _ in range(rng.randint(1, 8)):
        changed = rng.choice(MUTATIONS)(data, rng)
        if not valid or not _flaw(changed):
            data = changed
    return data


def fault(data: bytes, options: Mapping[str, Options]) -> str:
    """What perflint does to a file that holds `data` that is a fault of ours; empty where nothing."""
    rules = all_rules()
    checked, _ = check_bytes("fuzzed.py", data, rules, options)
    if checked.problem and checked.problem.traceback:
        return checked.problem.traceback
    try:
        text = decode("fuzzed.py", data).text
        fixed = fix_text(text, rules, options, unsafe=True)
    except (Unreadable, *FILE_FAULTS):
        return "" if checked.problem else "check has nothing to say of a file that fix cannot read"
    except Exception:
        return traceback.format_exc()
    return _flaw(fixed.text) or _misplaced(checked, text)


def _flaw(code: str | bytes) -> str:
    """Why `code` is not a program; empty where it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (ValueError, *FILE_FAULTS) as error:
        return f"not a program: {error}"
    return ""


def _misplaced(checked: FileResult, text: str) -> str:
    for each in checked.diagnostics:
        if not 0 <= each.start.offset <= each.end.offset <= len(text) or not each.frame:
            return f"misplaced: {each}"
    return ""


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Mutation:
    return lambda data, rng: _changed(data.splitlines(keepends=True), change, rng)


def _tokens(change: Callable[[list[bytes], random.Random], None]) -> Mutation:
    return lambda data, rng: _changed(_TOKEN.findall(data), change, rng)


def _changed(parts: list[bytes], change: Callable[[list[bytes], random.Random], None], rng: random.Random) -> bytes:
    if parts:
        change(parts, rng)
    return b"".join(parts)


def _delete(parts: list[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(parts))
    del parts[start : start + rng.choice((1, 1, 1, 2, 5))]


def _double(parts: list[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(parts))
    parts[start:start] = parts[start : start + rng.choice((1, 1, 3, 10))]


def _swap(parts: list[bytes], rng: random.Random) -> None:
    one, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]


def _copy(parts: list[bytes], rng: random.Random) -> None:
    parts[rng.randrange(len(parts))] = rng.choice(parts)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _spice(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_SPICE) + data[at:]


def _random_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 4)) + data[at + rng.randint(0, 4) :]


def _indent(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    start = rng.randint(0, len(lines))
    stop = start + rng.randint(1, 20)
    return b"".join([*lines[:start], *(b"    " + line for line in lines[start:stop]), *lines[stop:]])


def _other_newlines(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r")), rng.choice((-1, 1, 5)))


MUTATIONS: Sequence[Mutation] = (
    *(_lines(_delete), _lines(_double), _lines(_swap), _lines(_copy)),
    *(_tokens(_delete), _tokens(_double), _tokens(_swap), _tokens(_copy), _tokens(_copy)),
    *(_cut, _spice, _random_bytes, _indent, _other_newlines),
)


def faults(files: Sequence[bytes], count: int, seed: int) -> Iterator[tuple[int, bytes, str]]:
    """Number, content and fault of each of `count` mutated files; the fault is empty where all is well."""
    options = {rule.name: {key: each.default for key, each in rule.options.items()} for rule in all_rules()}
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        data = mutated(rng.choice(files), rng)
        yield number, data, fault(data, options)


def corpus(folder: Path) -> list[bytes]:
    """The contents of the Python files below `folder` that are not too large and speak of torch."""
    contents = (path.read_bytes() for path in sorted(folder.rglob("*.py")) if path.stat().st_size <= MAX_BYTES)
    return [content for content in contents if b"torch" in content]


def main() -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    files = corpus(arguments.folder)
    kinds: Counter[str] = Counter()
    for number, data, found in faults(files, arguments.count, arguments.seed):
        if found:
            kinds[found.strip().splitlines()[-1]] += 1
            print(f"-- file {number}\n{found}", flush=True)
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{number}.py").write_bytes(data)
    print(f"{arguments.count} mutations of {len(files)} files, {kinds.total()} faults")
    for kind, times in kinds.most_common():
        print(f"{times:6} {kind}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
