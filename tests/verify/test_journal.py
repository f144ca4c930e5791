"""Whatever a program does to files is undone: what there was is put back, and what is new below its folders removed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from perflint.verify.agent.journal import elsewhere, entries, put_back, written

FIXTURES = Path(__file__).parents[2] / "fixtures" / "verify"
UNDER_WATCH = """
import sys; from pathlib import Path; from perflint.verify.agent.journal import Journal
watched = Journal(Path(sys.argv[1]), [sys.argv[2]], [sys.argv[3]]).watch({})
import os, pathlib, shutil, sqlite3, subprocess, tempfile
watched['sqlite3'](sqlite3)
DATABASE = "each = sqlite3.connect('{}'); each.execute('create table t (x)'); each.commit()"
"""
CHANGES = {
    "a new file": "open('new.txt', 'w').write('new')",
    "a file that is overwritten": "open('old.txt', 'w').write('new')",
    "a file that is added to": "open('old.txt', 'a').write('new')",
    "a file that is cut": "os.truncate('old.txt', 1)",
    "a file that is removed": "os.remove('old.txt')",
    "a file that is moved": "os.rename('old.txt', 'moved.txt')",
    "a file that is replaced": "open('new.txt', 'w').write('new'); os.replace('new.txt', 'old.txt')",
    "a file that becomes a folder": "os.remove('old.txt'); os.makedirs('old.txt/below')",
    "a new folder": "os.makedirs('a/b'); open('a/b/new.txt', 'w').write('new')",
    "a folder that is removed": "shutil.rmtree('folder')",
    "a folder that is moved": "os.rename('folder', 'moved')",
    "an archive that is unpacked": (
        "import tarfile; each = tarfile.open('new.tar', 'w'); each.add('old.txt'); each.close();"
        "tarfile.open('new.tar').extractall('unpacked')"
    ),
    "a link": "os.symlink('old.txt', 'link2'); os.remove('link'); open('link', 'w').write('new')",
    "a file by its link": "open('link', 'w').write('new')",
    "a file of another process": "os.system(sys.executable + ' -c 0'); os.fork() or open('old.txt', 'w').write('new')",
    "paths": "p = pathlib.Path('old.txt'); p.write_text('new'); p.rename('a'); pathlib.Path('b').mkdir(); p.open('w')",
    "names": "open(file='old.txt', mode='w'); os.rename(src='old.txt', dst='c')",
    "a new pipe": "os.mkfifo('new')",
    "a pipe that is removed": "os.remove('folder/pipe')",
    "a pipe that is made anew": "os.remove('folder/pipe'); os.mkfifo('folder/pipe', 0o600)",
    "a new socket": "import socket; each = socket.socket(socket.AF_UNIX); each.bind('new'); each.close()",
    "a socket that is left by a server": "os.remove('folder/socket')",
    "a descriptor": "os.write(os.open('old.txt', os.O_WRONLY), b'new'); os.open('new.txt', os.O_CREAT | os.O_WRONLY)",
    "a database": "exec(DATABASE.format('new.db')); os._exit(1)",
    "a database by its address": "sqlite3.connect('file:new.db?mode=rwc', uri=True).execute('create table t (x)')",
    "a command": "os.system('mkdir -p a/b && cp old.txt a/b/new.txt; echo new >old.txt')",
    "a program": "subprocess.run(['mv', 'folder/inner.txt', pathlib.Path('new.txt')])",
    "a program elsewhere": "subprocess.check_call('echo new > inner.txt', shell=True, cwd='folder')",
    "a program that is given its code": "subprocess.run([sys.executable, '-c', '#' * 5000]); os.remove('old.txt')",
    "an option of a program": "subprocess.run(['cp', 'old.txt', '--target-directory=folder'])",
    "an end without a word": "open('old.txt', 'w').write('new'); os._exit(1)",
}


def content(folder: Path) -> Mapping[str, object]:
    return {
        str(path.relative_to(folder)): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else path.stat().st_mode
        )
        for path in folder.rglob("*")
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "folder").mkdir(parents=True)
    (folder / "old.txt").write_text("old")
    (folder / "old.txt").chmod(0o640)
    (folder / "folder" / "inner.txt").write_text("inner")
    (folder / "link").symlink_to("old.txt")
    os.mkfifo(folder / "folder" / "pipe", 0o640)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(folder / "folder")  # paths of sockets are short
        server.bind("socket")
    return folder


def run(home: Path, source: str, ours: str = "ours") -> Path:
    journal = home.parent / "journal"
    journal.mkdir(exist_ok=True)
    command = [sys.executable, "-c", UNDER_WATCH + source, str(journal), str(home), ours and str(home.parent / ours)]
    subprocess.run(command, cwd=home, check=False)
    return journal


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_program_changes_is_undone(home: Path, change: str) -> None:
    before, times = content(home), (home / "old.txt").stat()
    journal = run(home, CHANGES[change])
    assert content(home) != before
    put_back(journal)
    assert content(home) == before
    after = (home / "old.txt").stat()
    assert (after.st_mtime_ns, after.st_mode) == (times.st_mtime_ns, times.st_mode)
    assert not list(journal.iterdir())


def test_what_torch_writes_in_other_languages_is_undone(home: Path) -> None:
    before = content(home)
    program = str(FIXTURES / "kinds_of_files.py")
    modules = ("torch", "torch.autograd.profiler")
    watched = f"import torch; [watched[each](sys.modules[each]) for each in {modules}]; "
    journal = run(home, f"{watched}import runpy; runpy.run_path({program!r})")
    assert len(content(home)) == len(before) + 14
    put_back(journal)
    assert content(home) == before


def test_all_is_undone_where_there_is_no_folder_of_ours(home: Path) -> None:
    before = content(home)
    put_back(run(home, "open('old.txt', 'w').write('new'); os.remove('folder/inner.txt')", ours=""))
    assert content(home) == before


def test_what_is_written_below_its_folders_is_told(home: Path) -> None:
    journal = run(home, "open('new.txt', 'w').write('new'); os.remove('old.txt'); open('folder/inner.txt', 'a')")
    files = written(journal, home.parent / "copies")
    assert {Path(name).name: copy and copy.read_text() for name, copy in files.items()} == {
        "new.txt": "new",
        "old.txt": None,
    }


def test_what_is_written_elsewhere_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(home.parent / "temporary"))
    (home.parent / "old.txt").write_text("old")
    for folder in ("temporary", "out", ".library"):
        (home.parent / folder).mkdir()
    paths = ("new.txt", "../old.txt", "../out/new.txt", "../temporary/x", "../.library/x")
    source = f"[open(each, 'a').write('x') for each in {paths}]; open('../gone', 'w'); os.remove('../gone')"
    assert set(elsewhere(run(home, source))) == {str(home.parent / "old.txt"), str(home.parent / "out" / "new.txt")}


def test_elsewhere_what_is_new_stays_and_what_was_is_put_back(home: Path) -> None:
    other = home.parent / "old.txt"
    other.write_text("old")
    journal = run(home, "open('../old.txt', 'w').write('new'); open('../new.txt', 'w').write('new')")
    put_back(journal)
    assert other.read_text() == "old"
    assert (home.parent / "new.txt").read_text() == "new"


def test_elsewhere_what_is_new_and_removed_again_does_not_come_back(home: Path) -> None:
    made = (
        "open('../new.txt', 'w').write('new'); os.remove('../new.txt'); tempfile.TemporaryDirectory(dir='..').cleanup()"
    )
    before = content(home.parent).keys()
    put_back(run(home, made))
    assert {path for path in content(home.parent) if not path.startswith("journal")} == before


def test_what_is_only_read_or_ours_is_not_touched(home: Path) -> None:
    (home.parent / "ours").mkdir()
    journal = run(home, "open('old.txt').read(); open('../ours/new.txt', 'w').write('new'); os.makedirs('__pycache__')")
    assert not list(journal.iterdir())


def test_what_others_write_in_a_folder_that_is_made_once_more_is_put_back(home: Path) -> None:
    before = content(home)
    journal = run(
        home, "import ctypes; os.makedirs('folder', exist_ok=True); ctypes.CDLL(None).unlink(b'folder/inner.txt')"
    )
    assert content(home) != before
    put_back(journal)
    assert content(home) == before


def test_files_that_look_the_same_are_told_apart_as_they_are_moved(home: Path) -> None:
    for number in range(3):
        (home / f"{number}.pt").write_text(str(number) * 50)
        os.utime(home / f"{number}.pt", ns=(10**18, 10**18))
    before = content(home)
    put_back(run(home, "os.replace('1.pt', '2.pt'); os.replace('0.pt', '1.pt'); shutil.copy2('1.pt', '0.pt')"))
    assert content(home) == before


def test_of_a_folder_that_was_moved_nothing_stays_where_it_went(home: Path) -> None:
    before = content(home)
    journal = run(home, "os.rename('folder', 'other'); open('other/inner.txt', 'w').write('new'); os.mkdir('folder')")
    put_back(journal)
    assert content(home) == before


def test_what_another_program_writes_meanwhile_in_a_new_folder_stays(home: Path) -> None:
    before = content(home)
    journal = run(home, "os.makedirs('runs/mine'); open('runs/mine/log', 'w').write('x')")
    (home / "runs" / "other").mkdir()
    (home / "runs" / "other" / "weights.pt").write_text("weights")
    put_back(journal)
    assert content(home).keys() - before.keys() == {"runs", "runs/other", "runs/other/weights.pt"}


def test_all_names_of_a_file_name_the_same_file_again(home: Path) -> None:
    (home / "second.txt").hardlink_to(home / "old.txt")
    put_back(run(home, "open('old.txt', 'w').write('new')"))
    assert (home / "second.txt").read_text() == "old" and (home / "second.txt").samefile(home / "old.txt")


def test_what_is_kept_of_compiled_code_stays(home: Path) -> None:
    cache = home.parent / "torchinductor_me" / "fx"
    cache.mkdir(parents=True)
    put_back(
        run(home, f"os.makedirs({str(cache)!r}, exist_ok=True); open({str(cache / 'graph')!r}, 'w').write('compiled')")
    )
    assert (cache / "graph").read_text() == "compiled"
    assert not list((home.parent / "journal").iterdir())


@pytest.mark.parametrize("address", ["\\0journal", ""])
def test_a_socket_that_is_no_file_can_be_bound(home: Path, address: str) -> None:
    bound = f"import socket; socket.socket(socket.AF_UNIX).bind('{address}'); open('new.txt', 'w')"
    journal = run(home, bound)
    assert [entry.path for entry, _ in entries(journal)] == [str(home / "new.txt")]
