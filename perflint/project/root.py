"""Finds the folder of the project that a file is part of."""

from __future__ import annotations

from pathlib import Path

_MARKS = ("perflint.toml", "pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


def project_of(folder: Path) -> Path:
    """The nearest folder, upwards from `folder`, that has the files of a project; `folder` itself if none has."""
    marked = (each for each in (folder, *folder.parents) if any((each / name).exists() for name in _MARKS))
    return next(marked, folder)


def project_around(folder: Path) -> Path:
    """The project of what is named in `folder`: that of the working directory, if it holds the folder.

    A home directory is no project, whoever works in it.
    """
    here = Path.cwd()
    is_inside = folder.is_relative_to(here) and here not in (Path.home(), Path(here.anchor))
    return project_of(here if is_inside else folder)
