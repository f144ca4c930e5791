"""The cache may be lost, damaged, locked or shared; what it returns is what was stored under that very key."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perflint.project import CACHE
from perflint.project.cache import KEEP_DAYS, Cache, keys_for, source_digest, source_folders
from tests.stub_rules import CRASH, EVAL

KEY, OTHER = b"k" * 16, b"o" * 16


def database(folder: Path) -> Path:
    (found,) = folder.glob("*.sqlite3")
    return found


def aged(cache: Cache, days: int) -> Cache:
    cache._today += days
    return cache


def rows(folder: Path) -> set[bytes]:
    connection = sqlite3.connect(database(folder))
    try:
        return {key for (key,) in connection.execute("SELECT key FROM results")}
    finally:
        connection.close()


def test_what_was_stored_is_loaded_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / CACHE
    assert Cache(folder).load([KEY]) == {}
    assert not folder.exists()
    Cache(folder).store({KEY: "", OTHER: "ä"})
    assert Cache(folder).load([KEY, OTHER, b"x" * 16]) == {KEY: "", OTHER: "ä"}


def test_many_keys_are_loaded_at_once(tmp_path: Path) -> None:
    payloads = {number.to_bytes(16, "big"): str(number) for number in range(3000)}
    Cache(tmp_path).store(payloads)
    assert Cache(tmp_path).load(list(payloads)) == payloads


def test_the_folder_is_invisible_to_git_and_to_backups(tmp_path: Path) -> None:
    Cache(tmp_path / CACHE).store({KEY: ""})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    status = subprocess.run(["git", "-C", str(tmp_path), "status", "--porcelain"], capture_output=True, check=True)
    assert status.stdout == b""
    assert (tmp_path / CACHE / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_nothing_is_put_beside_the_database_in_a_folder_of_the_user_s(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    Cache(tmp_path).store({KEY: ""})
    assert {path.name for path in tmp_path.iterdir()} == {"mine", database(tmp_path).name}


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    Cache(tmp_path).store({KEY: "a"})
    database(tmp_path).write_bytes(damage)
    assert Cache(tmp_path).load([KEY]) == {}
    Cache(tmp_path).store({KEY: "b"})
    assert Cache(tmp_path).load([KEY]) == {KEY: "b"}


def test_no_damage_to_any_page_changes_a_result(tmp_path: Path) -> None:
    payloads = {bytes([number]) * 16: str(number) * 100 for number in range(200)}
    Cache(tmp_path).store(payloads)
    whole = database(tmp_path).read_bytes()
    for at in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[at : at + 3] = b"\x00\xff1"
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / database(tmp_path).name).write_bytes(damaged)
        assert Cache(tmp_path / "d").load(list(payloads)).items() <= payloads.items()
        shutil.rmtree(tmp_path / "d")


def test_a_payload_under_another_key_is_not_believed(tmp_path: Path) -> None:
    Cache(tmp_path).store({KEY: "a"})
    connection = sqlite3.connect(database(tmp_path))
    with connection:
        connection.execute("UPDATE results SET key = ?", (OTHER,))
    connection.close()
    assert Cache(tmp_path).load([OTHER]) == {}


@pytest.mark.parametrize("value", ["text", None, 1])
def test_a_row_of_another_make_is_not_believed(tmp_path: Path, value: object) -> None:
    Cache(tmp_path).store({KEY: "a"})
    database(tmp_path).unlink()
    connection = sqlite3.connect(tmp_path / "results-2.sqlite3")
    with connection:
        connection.execute("CREATE TABLE results (key, checksum, used, payload)")
        connection.execute("INSERT INTO results VALUES (?, ?, ?, ?)", (KEY, value, value, value))
    connection.close()
    assert Cache(tmp_path).load([KEY]) == {}
    Cache(tmp_path).store({KEY: "a"})


def test_a_place_that_cannot_be_a_folder_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/perflint/cache")):
        Cache(folder).store({KEY: "a"})
        assert Cache(folder).load([KEY]) == {}


def test_a_database_that_may_not_be_written_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).store({KEY: "a"})
    connect = sqlite3.connect

    def read_only(path: Path, **options: float) -> sqlite3.Connection:
        return connect(f"{path.as_uri()}?mode=ro", uri=True, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    Cache(tmp_path).store({OTHER: "b"})
    assert Cache(tmp_path).load([KEY, OTHER]) == {KEY: "a"}


def test_a_locked_database_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.project.cache._WAIT_S", 0.01)
    Cache(tmp_path).store({KEY: "a"})
    writer = sqlite3.connect(database(tmp_path), isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    Cache(tmp_path).store({OTHER: "b"})
    assert Cache(tmp_path).load([KEY]) == {}
    writer.execute("ROLLBACK")
    writer.close()
    assert Cache(tmp_path).load([KEY, OTHER]) == {KEY: "a"}


def test_processes_may_write_at_once(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for step in range(10):
            Cache(tmp_path).store({bytes([number, step]) * 8: f"{number} {step}"})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {bytes([number, step]) * 8: f"{number} {step}" for number in range(4) for step in range(10)}
    assert Cache(tmp_path).load(list(expected)).items() <= expected.items()


def test_rows_that_are_used_stay_and_others_go(tmp_path: Path) -> None:
    Cache(tmp_path).store({KEY: "a", OTHER: "b"})
    later = aged(Cache(tmp_path), KEEP_DAYS)
    later.load([KEY])
    later.store({})
    aged(Cache(tmp_path), KEEP_DAYS + 1).store({b"x" * 16: ""})
    assert rows(tmp_path) == {KEY, b"x" * 16}


def test_the_number_of_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.project.cache.KEEP_ROWS", 2)
    Cache(tmp_path).store({KEY: "a"})
    aged(Cache(tmp_path), 1).store({OTHER: "b", b"x" * 16: "c"})
    assert rows(tmp_path) == {OTHER, b"x" * 16}


def test_a_key_tells_apart_all_that_a_result_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    base = keys_for([EVAL], {}, b"source")
    keys = [
        base.key("a.py", b"x"),
        base.key("a.py", b"y"),
        base.key("a.ipynb", b"x"),
        keys_for([EVAL, CRASH], {}, b"source").key("a.py", b"x"),
        keys_for([EVAL], {"eval": {"message": "no"}}, b"source").key("a.py", b"x"),
        keys_for([EVAL], {}, b"changed").key("a.py", b"x"),
    ]
    monkeypatch.setattr(sys, "version", "3.99")
    keys.append(keys_for([EVAL], {}, b"source").key("a.py", b"x"))
    assert len(set(keys)) == len(keys)
    assert base.key("b/other.py", b"x") == base.key("a.py", b"x")


def test_the_digest_of_the_code_follows_every_file_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pack/__init__.py", "pack/helper.py", "pack/data.json", "pack/deep/defect.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "pack" / "deep" / "defect.py").write_text(
        "from perflint.engine.rule import Rule\n\n\nclass Defect(Rule):\n    group = 'data'\n\n"
        "    def check(self, program, options):\n        return iter(())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from pack.deep.defect import Defect  # type: ignore[import-not-found]

    seen = {source_digest(source_folders([])), source_digest(source_folders([Defect()]))}
    for name in ("pack/helper.py", "pack/data.json", "pack/deep/defect.py"):
        (tmp_path / name).write_text("[]")
        seen.add(source_digest(source_folders([Defect()])))
    assert len(seen) == 5
    assert source_digest(source_folders([Defect()])) in seen
