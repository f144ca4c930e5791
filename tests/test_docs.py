"""README and the documents: short, complete, and every command in them is one that perflint knows."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from perflint.cli.commands import cli
from perflint.cli.options import documents
from perflint.engine.catalogue import rules_by_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
_SHOWN = re.compile(r"^    (?:\$ |.* -m )?(perflint [a-z].*)$|`(perflint [a-z][^`]*)`", re.MULTILINE)


def _commands() -> Iterator[tuple[str, str]]:
    for name, text in [("README", README), *documents().items()]:
        for match in _SHOWN.finditer(text):
            yield name, (match[1] or match[2]).partition("  #")[0].partition(" && ")[0]


@pytest.mark.parametrize(("where", "command"), sorted(set(_commands())))
def test_every_command_that_is_shown_has_its_options(where: str, command: str) -> None:
    name, *typed = shlex.split(command)[1:]
    known = cli.commands[name]
    names = {option for each in known.params for option in (*each.opts, *each.secondary_opts)}
    programs = (at for at, each in enumerate(typed) if each.endswith(".py") or each == "torchrun")
    runs = ("run", "verify", "profile", "tune")
    own = typed[: next(programs, None)] if name in runs else typed  # what a program is given is its own
    assert {each.partition("=")[0] for each in own if each.startswith("--")} <= names


def test_a_newcomer_reads_the_readme_in_five_minutes() -> None:
    assert len(README.split()) < 1200


def test_the_picture_shows_the_patch_that_the_first_command_prints(tmp_path: Path) -> None:
    picture = html.unescape((ROOT / "perflint/docs/picture.svg").read_text(encoding="utf-8"))
    shown = re.findall(r">([+-] {8}.*?)</text>", picture)
    workload = str(ROOT / "fixtures/workloads/seq2seq.py")
    cached = ["--isolated", "--cache-dir", str(tmp_path)]  # for both look at all files of this project
    diff = CliRunner().invoke(cli, ["fix", *cached, workload]).stdout
    assert [line for line in diff.splitlines() if re.match(r"[+-] ", line)] == shown
    concise = ["check", *cached, "--output-format", "concise", workload]
    assert "decode-loop [*] each time step launches its own kernels" in CliRunner().invoke(cli, concise).stdout


def test_the_readme_names_every_rule_and_every_document() -> None:
    assert [name for name in rules_by_name() if name not in README] == []
    assert [topic for topic in documents() if f"perflint/docs/{topic}.md" not in README] == []


def test_each_known_trap_names_tests_that_there_are() -> None:
    traps = (ROOT / "tests/traps.md").read_text(encoding="utf-8").splitlines()
    rows = [row for row in traps if row.startswith("| ") and "---" not in row]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = [re.findall(r"`(test_\w+)(?:\[([^]]+)\])?`", row) for row in rows if "proved by" not in row]
    assert all(named)
    missing = {name for names in named for name, case in names if f"def {name}(" not in text or case not in text}
    assert not missing


def test_the_files_that_the_readme_links_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_documents_are_listed_shown_and_guessed() -> None:
    run = CliRunner().invoke
    listed = run(cli, ["docs"]).stdout
    assert all(f"perflint docs {topic}:" in listed.replace("`", "") for topic in documents())
    assert run(cli, ["docs", "fixing"]).stdout == documents()["fixing"]
    result = run(cli, ["docs", "fixin"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean fixing?" in result.stderr


def test_every_command_has_help() -> None:
    for command in cli.commands.values():
        assert isinstance(command, click.Command)
        assert command.get_short_help_str()
