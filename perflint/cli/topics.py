"""Finds the documents of the package, which are markdown files in `perflint/docs`."""

from __future__ import annotations

from importlib.resources import files

_FOLDER = files("perflint") / "docs"


def topics() -> list[str]:
    """The names of the documents, sorted."""
    return sorted(each.name.removesuffix(".md") for each in _FOLDER.iterdir() if each.name.endswith(".md"))


def read(topic: str) -> str:
    """A document, as markdown."""
    return (_FOLDER / f"{topic}.md").read_text(encoding="utf-8")


def overview() -> str:
    """The titles of all documents, as markdown."""
    titles = ((topic, read(topic).partition("\n")[0].removeprefix("# ")) for topic in topics())
    lines = [f"- `perflint docs {topic}`: {title}" for topic, title in titles]
    return "\n".join(["# Documents", "", *lines, "", "`perflint explain RULE` shows the page of a rule."]) + "\n"
