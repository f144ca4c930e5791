"""Finds the folder of the project that a file is part of."""

from __future__ import annotations

from pathlib import Path

_MARKS = ("perflint.toml", "pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


def project_of(folder: Path) -> Path:
    """The nearest folder, upwards from `folder`, that has the files of a project; `folder` itself if none has."""
    return next(filter(is_marked, (folder, *folder.parents)), folder)


def is_marked(folder: Path) -> bool:
    """Whether a folder has what says that a project begins there."""
    return any((folder / name).exists() for name in _MARKS)


def project_around(folder: Path) -> Path:
    """The project of what is named in `folder`: that of the working directory, if it holds the folder.

    A home directory is no project, whoever works in it.
    """
    here, own = Path.cwd(), project_of(folder)
    is_inside = folder.is_relative_to(here) and here not in (Path.home(), Path(here.anchor))
    around = project_of(here)
    return around if is_inside and (is_marked(around) or not is_marked(own)) else own
