"""What a program can import is found by its text alone, and nothing else of the repository around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.project.closure import Closure, of_program


def written(folder: Path, files: dict[str, str]) -> Path:
    """A repository of these files, among others that nothing imports."""
    for name, text in {"strange.py": "", "other/train.py": "import strange\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def closure(folder: Path, name: str = "train.py", *launched: str, is_module: bool = False) -> Closure | None:
    return of_program(name, launched, is_module=is_module, folder=folder, top=folder)


def files(folder: Path, *given: str, is_module: bool = False) -> list[str]:
    found = closure(folder, *given, is_module=is_module)
    assert found
    return [path.relative_to(folder.resolve()).as_posix() for path in found.files]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("import a, torch\nfrom p.q import r\n", ["a.py", "p/__init__.py", "p/q.py", "p/base.py"]),
        ("def main():\n    from p import q\n", ["p/__init__.py", "p/q.py", "p/base.py"]),
        ("import importlib\nimportlib.import_module('p.base')\n", ["p/__init__.py", "p/base.py"]),
        ("import sys\nsys.path.append('lib/far')\nimport deep\n", ["lib/far/deep.py"]),
        (
            "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib', 'far'))\nimport deep\n",
            ["lib/far/deep.py"],
        ),
        ("import subprocess, sys\nsubprocess.run([sys.executable, 'a.py'])\n", ["a.py"]),
        ("exec(open('a.py').read())\n", ["a.py"]),
        ("'''Much as a.py does.'''\n", []),
        ("import data\n", []),
        ("from installed import thing\n", ["src/installed.py"]),
    ],
)
def test_all_that_a_script_can_import_is_in_its_closure(tmp_path: Path, script: str, found: list[str]) -> None:
    written(
        tmp_path,
        {
            **dict.fromkeys(("a.py", "p/__init__.py", "p/base.py", "lib/far/deep.py", "data/x.py"), ""),
            "p/q.py": "from .base import Base\nfrom . import base\n",
            "src/installed.py": "",
            "train.py": script,
        },
    )
    assert files(tmp_path) == ["train.py", *found]


def test_names_that_are_made_at_run_time_may_be_those_of_all_modules_beside(tmp_path: Path) -> None:
    package = "import importlib\n\n\ndef model(name):\n    return importlib.import_module('models.' + name)\n"
    written(tmp_path, {"train.py": "import models\n", "models/__init__.py": package, "models/net.py": "import a\n"})
    written(tmp_path, {"a.py": "", "models/.venv/b.py": ""})
    assert files(tmp_path) == ["train.py", "models/__init__.py", "models/net.py", "a.py"]
    found = closure(tmp_path)
    assert found and {folder.name for folder in found.folders} == {"models"}


def test_a_package_is_started_with_what_lies_around_it(tmp_path: Path) -> None:
    written(tmp_path, {"p/__init__.py": "", "p/__main__.py": "from .q import main\n", "p/q.py": ""})
    assert files(tmp_path, "p", is_module=True) == ["p/__init__.py", "p/__main__.py", "p/q.py"]
    assert files(tmp_path, "p.q", is_module=True) == ["p/__init__.py", "p/q.py"]
    assert files(tmp_path, "p") == ["p/__main__.py", "p/q.py"]


def test_what_a_launcher_runs_is_its_program_and_of_others_nothing_is_known(tmp_path: Path) -> None:
    written(tmp_path, {"train.py": "import a\n", "a.py": ""})
    assert files(tmp_path, "torch.distributed.run", "train.py", is_module=True) == ["train.py", "a.py"]
    assert files(tmp_path, "torch.distributed.run", "a", is_module=True) == ["a.py"]
    assert closure(tmp_path, "pytest", is_module=True) is None


def test_a_file_that_would_be_imported_instead_is_looked_for(tmp_path: Path) -> None:
    written(tmp_path, {"scripts/train.py": "import a\n", "a.py": ""})
    found = closure(tmp_path, "scripts/train.py")
    assert found and found.files[-1].name == "a.py"
    assert str(tmp_path.resolve() / "scripts" / "a.py") in found.looked_at


@pytest.mark.parametrize("text", ["this is no Python\n", "# coding: of-nobody\n"])
def test_a_file_that_cannot_be_parsed_belongs_to_the_program(tmp_path: Path, text: str) -> None:
    written(tmp_path, {"train.py": "import a\n", "a.py": text})
    found = closure(tmp_path)
    assert found and [module.imports is None for module in found.modules] == [False, True]


def test_imports_are_looked_for_in_the_folders_around_the_file_nearest_first(tmp_path: Path) -> None:
    written(tmp_path, {"x/y/a.py": "import b\n", "x/b.py": "", "b.py": ""})
    assert files(tmp_path, "x/y/a.py") == ["x/y/a.py", "x/b.py"]


def test_a_module_that_is_installed_is_not_looked_for_all_over_the_repository(tmp_path: Path) -> None:
    """As `torch` in its own repository: scripts there import what is installed, unless they see to it themselves."""
    sources = dict.fromkeys(("torch/__init__.py", "torch/big.py", "src/torch/__init__.py", "numpy/__init__.py"), "")
    written(
        tmp_path, {**sources, "tools/a.py": "import torch, numpy\nfrom torch import big\nimport near\n", "near.py": ""}
    )
    assert files(tmp_path, "tools/a.py") == ["tools/a.py", "near.py"]
    (tmp_path / "tools/a.py").write_text("import sys\nsys.path.insert(0, '..')\nfrom torch import big\n")
    assert files(tmp_path, "tools/a.py") == ["tools/a.py", "torch/__init__.py", "torch/big.py"]
    (tmp_path / "tools/a.py").write_text("import torch\n")
    (tmp_path / "tools/torch.py").touch()
    assert files(tmp_path, "tools/a.py") == ["tools/a.py", "tools/torch.py"]
