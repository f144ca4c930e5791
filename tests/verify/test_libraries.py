"""What a program imports is imported once for all its starts, unless that could make a difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from perflint.project.closure import of_program
from perflint.verify.forks import SERVER, Notes, Popen, address, libraries
from perflint.verify.messages import Kind
from tests import forks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, beside one of packages that are installed."""
    installed = tmp_path / "site-packages"
    for name in ("vision", "text", "plots", "seldom"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    home = tmp_path / "home"
    (home / "own").mkdir(parents=True)
    return home


def found(folder: Path, script: str, kind: Kind = Kind.SCRIPT, name: str = "train.py") -> tuple[str, ...] | None:
    (folder / "train.py").write_text(script)
    is_module = kind is not Kind.SCRIPT
    notes = Notes()
    closure = of_program(name, (), is_module=is_module, folder=folder, top=folder, visit=notes.visit)
    return libraries(closure, notes)


def test_what_is_installed_and_always_imported_is_known_through_own_modules(folder: Path) -> None:
    (folder / "own" / "data.py").write_text("import text.tokens\nfrom . import other\n")
    (folder / "plots.py").write_text("")  # stands before what is installed
    script = "import json, torch\nfrom vision import models\nfrom own.data import load\nimport plots, nowhere\n"
    assert found(folder, f"{script}\n\ndef main():\n    import seldom\n") == (
        "vision",
        "vision.models",
        "text.tokens",
    )


def test_an_installed_package_that_a_link_on_the_path_leads_to_is_none_of_the_programs_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "site-packages" / "vision" / "__init__.py").write_text("import lmdb\n")
    (folder.parent / "links").mkdir()
    (folder.parent / "links" / "vision").symlink_to(folder.parent / "site-packages" / "vision")
    monkeypatch.setenv("PYTHONPATH", str(folder.parent / "links"))
    notes = Notes()
    (folder / "train.py").write_text("import vision\n")
    closure = of_program("train.py", (), is_module=False, folder=folder, top=folder, visit=notes.visit)
    assert closure and closure.files == ((folder / "train.py").resolve(),)
    assert not notes.others


def test_what_modules_do_that_are_imported_relatively_is_known_as_well(folder: Path) -> None:
    (folder / "own" / "__main__.py").write_text("from . import start\nfrom .start import main\nimport vision\n")
    (folder / "own" / "start.py").write_text("import text\n")
    assert found(folder, "", Kind.MODULE, "own") == ("vision", "text")
    (folder / "own" / "start.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    assert found(folder, "", Kind.MODULE, "own") is None


def test_a_module_is_found_by_its_name(folder: Path) -> None:
    (folder / "own" / "__main__.py").write_text("import vision\n")
    (folder / "own" / "__init__.py").write_text("import text\n")
    assert found(folder, "", Kind.MODULE, "own") == ("text", "vision")
    assert found(folder, "import text", Kind.CALL, "train") == ("text",)


@pytest.mark.parametrize(
    ("script", "known"),
    [
        ("import os, vision\nprint(os.environ['OMP_NUM_THREADS'], os.environ.get('RANK', -1))", ("vision",)),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport vision", ()),
        ("import os\nos.environ.setdefault('VISION_HOME', '.')\nimport vision", ()),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch", None),
        ("from os import environ\nenviron['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'", None),
        ("import os\nos.putenv('MKL_NUM_THREADS', '1')", None),
        ("import os\nos.environ.update(settings())", None),
        ("import os\nos.environ.update({'MASTER_PORT': '1'}, MASTER_ADDR='::1')\nimport vision", ()),
        ("import os\nos.environ.update({'MASTER_PORT': '1', **settings()})", None),
        ("import os\nos.environ.update(MASTER_PORT='1', OMP_NUM_THREADS='1')", None),
        ("import os\nos.environ[name()] = '1'", None),
        ("not a program", None),
    ],
)
def test_a_program_that_changes_its_environment_imports_after_that(
    folder: Path, script: str, known: tuple[str, ...] | None
) -> None:
    assert found(folder, script) == known


def test_a_program_that_is_no_file_of_its_own_starts_by_itself(folder: Path) -> None:
    assert found(folder, "", name="missing.py") is None
    assert found(folder, "", Kind.MODULE, "vision") is None


def test_where_files_may_be_written_otherwise_than_by_python_is_known(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import os, subprocess, sys\nimport plots\nsubprocess.run([sys.executable, 'a.py'])\nos.system('nvidia-smi')\n"
        "def store():\n    import lmdb\n"
    )
    (folder / "plots.py").write_text("import subprocess\n\n\ndef show():\n    return subprocess.Popen(['gnuplot'])\n")
    notes = Notes()
    of_program("train.py", (), is_module=False, folder=folder, top=folder, visit=notes.visit)
    assert [Path(each).name for each in notes.others] == ["train.py:4", "train.py:6", "plots.py:5"]


def test_without_a_server_a_program_starts_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SERVER, str(tmp_path / "gone"))
    with Popen([sys.executable, "-c", "print('started')"], stdout=PIPE, text=True) as process:
        assert process.communicate()[0] == "started\n"
    assert process.returncode == 0


def test_where_libraries_start_threads_forks_have_imported_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER, raising=False)
    monkeypatch.setattr("perflint.verify.forks.sys.platform", "linux")
    monkeypatch.setattr(
        "perflint.verify.forks._served", lambda kind, names: SimpleNamespace(address="" if names else "server")
    )
    assert address({}, ("threaded",)) == "server"


def test_libraries_find_what_the_path_of_the_user_leads_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "seldom_installed.py").touch()
    monkeypatch.delenv(SERVER, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = "print(optional.IS_THERE, [*map(sys.path.count, sys.path)])"
    command = [sys.executable, "-c", f"import sys; from tests.verify import optional; {said}"]
    alone = subprocess.run(command, stdout=PIPE, text=True, check=True).stdout
    with Popen(command, libraries=("tests.verify.optional",), stdout=PIPE, text=True) as process:
        assert process.communicate()[0] == alone
        assert alone.startswith("True")


def test_a_process_with_threads_is_none_to_fork_from() -> None:
    source = (
        "import threading; from perflint.verify.forks import server; print(server.is_safe()); "
        "event = threading.Event(); threading.Thread(target=event.wait).start(); print(server.is_safe()); event.set()"
    )
    assert forks.run([sys.executable, "-c", source]).stdout.split() == ["True", "False"]


def test_a_module_brings_what_it_brings_to_a_new_interpreter() -> None:
    said = "print(sorted(name for name in sys.modules if name.startswith('perflint')))"
    command = [sys.executable, "-c", f"import sys, perflint.engine.suppress; {said}"]
    assert forks.run(command).stdout == subprocess.run(command, stdout=PIPE, text=True, check=True).stdout


def test_what_is_in_a_package_of_the_same_name_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "perflint" / "engine").mkdir(parents=True)
    (tmp_path / "perflint" / "__init__.py").touch()
    (tmp_path / "perflint" / "engine" / "__init__.py").write_text("print('own')")
    assert forks.run([sys.executable, "-c", "import perflint.engine"], cwd=tmp_path).stdout == "own\n"
