"""Files as bytes and as text: what cannot be read, and what must survive being written."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.documents.disk import Position, Unreadable, Unwritable, replace_bytes
from perflint.documents.document import Document, decode, read

LINE_BREAKS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\f\n", "\t"])


def decoded(data: bytes) -> Document:
    return decode("train.py", data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"x = 1\r\ny = 2\n\rz = 3\r",
        b"\x0c\nif x:\n\ty = 1 \t\n",
        codecs.BOM_UTF8 + "s = 'é'\r\n".encode(),
        codecs.BOM_UTF8 + b"# coding: utf-8\n",
        "# -*- coding: latin-1 -*-\ns = 'é'\n".encode("latin-1"),
        "#!/usr/bin/env python\r# vim: set fileencoding=cp1251 :\rs = 'ж'\r".encode("cp1251"),
        "# coding: shift_jis\ns = '表'\n".encode("shift_jis"),
        "x = 1\n\n# coding: latin-1\ns = 'é'\n".encode(),
    ],
)
def test_bytes_survive_decoding_and_encoding(data: bytes) -> None:
    document = decoded(data)
    assert document.encode(document.text) == data


@given(
    st.lists(st.one_of(st.text(max_size=5), LINE_BREAKS)).map("".join),
    st.sampled_from(["utf-8", "utf-8-sig", "cp1252"]),
)
def test_any_text_survives_in_any_encoding(text: str, encoding: str) -> None:
    cookie = "# coding: cp1252\n" if encoding == "cp1252" else ""
    data = (cookie + text).encode(encoding, "ignore")
    try:
        document = decoded(data)
    except Unreadable as error:
        assert "\0" in text or "coding" in text, error
        return
    assert document.encode(document.text) == data


@given(st.binary())
def test_any_bytes_are_read_back_the_same_or_refused(data: bytes) -> None:
    for path in ("a.py", "a.ipynb"):
        try:
            document = decode(path, data)
        except Unreadable:
            continue
        assert document.encode(document.text) == data


def test_the_text_has_no_byte_order_mark_and_keeps_its_line_breaks() -> None:
    assert decoded(codecs.BOM_UTF8 + b"x\r\ny").text == "x\r\ny"


@pytest.mark.parametrize(
    ("data", "message", "line"),
    [
        ("x = 1".encode("utf-16"), "UTF-16", None),
        ("x = 1".encode("utf-32"), "UTF-32", None),
        (b"x = 1\nname = 'M\xfcller'\n", "is not utf-8: byte 0xfc on line 2", 2),
        (b"x = 1\n\n\nname = 'M\xfcller'\n", "is not utf-8: byte 0xfc on line 4", 4),
        (b"# coding: nonsense\n", "unknown encoding: nonsense", 1),
        (b"# coding: rot13\n", "declares an encoding that Python cannot use: rot13", 1),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "encoding problem: utf-8", 1),
        (b"x = 1\ny = '\0'\n", "NUL", 2),
        (b"# coding: utf-7\ns = 'a+AGI-c'\n", "would not survive", None),
    ],
)
def test_what_is_not_source_is_refused_with_its_reason(data: bytes, message: str, line: int | None) -> None:
    with pytest.raises(Unreadable) as caught:
        decoded(data)
    assert message in caught.value.problem.message
    assert caught.value.problem.line == line


def test_a_huge_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("perflint.documents.document.MAX_CHARACTERS", 10)
    with pytest.raises(Unreadable, match="too large"):
        decoded(b"x = 1\ny = 2\n")
    path = tmp_path / "huge.py"
    path.write_text("x = 1\ny = 2\n")
    monkeypatch.setattr("perflint.documents.disk.MAX_BYTES", 10)
    with pytest.raises(Unreadable, match="too large"):
        read(path)


@pytest.mark.parametrize("name", ["missing.py", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unreadable):
        read(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(Unreadable, match="regular"):
        read(tmp_path / "pipe.py")


def test_positions_count_characters_after_any_line_break() -> None:
    document = decoded("é = 1\r\nb = 2\rc".encode())
    assert document.position(7) == Position(None, 7, 2, 1)
    assert document.position(13) == Position(None, 13, 3, 1)


def test_a_character_that_the_encoding_lacks_is_refused_by_name() -> None:
    document = decoded(b"# coding: latin-1\nx = 1\n")
    assert document.refusal(document.text + "y = 'é'\n") == ""
    assert "iso-8859-1, has no '→'" in document.refusal(document.text + "y = '→'\n")


def test_a_change_that_moves_the_declared_encoding_away_is_refused() -> None:
    document = decoded(b"# coding: latin-1\nx = 1\n")
    assert "encoding" in document.refusal("import torch\n\n" + document.text)
    assert "encoding" in decoded(b"x = 1\n\n# coding: latin-1\n").refusal("# coding: latin-1\n")


def test_writing_keeps_mode_mark_encoding_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(codecs.BOM_UTF8 + "s = 'é'\r\n".encode())
    path.chmod(0o750)
    read(path).write("s = 'è'\r\n")
    assert path.read_bytes() == codecs.BOM_UTF8 + "s = 'è'\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.py"]


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "train.py", tmp_path / "link.py"
    target.write_text("x = 1\n")
    link.symlink_to(target)
    read(link).write("x = 2\n")
    assert link.is_symlink()
    assert target.read_text() == "x = 2\n"


def test_a_file_that_changed_after_it_was_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    document = read(path)
    path.write_text("x = 1  # edited meanwhile\n")
    with pytest.raises(Unwritable, match=r"train\.py: not written: the file changed"):
        document.write("x = 2\n")
    assert path.read_text() == "x = 1  # edited meanwhile\n"


def test_a_file_that_changes_while_the_new_one_is_prepared_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    monkeypatch.setattr(os, "fsync", lambda handle: path.write_text("x = 3\n"))
    with pytest.raises(Unwritable, match="the file changed"):
        replace_bytes(path, b"x = 1\n", b"x = 2\n")
    assert path.read_text() == "x = 3\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.py"]


def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    path.chmod(0o444)
    with pytest.raises(Unwritable, match=r"train\.py: not written: the file is read-only"):
        read(path).write("x = 2\n")
    assert path.read_text() == "x = 1\n"


def test_a_folder_that_takes_no_file_gives_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)  # root may write into any folder
    with pytest.raises(Unwritable) as caught:
        read(path).write("x = 2\n")
    assert str(caught.value) == f"{path}: not written: Permission denied"


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod"])
def test_a_failure_on_the_way_leaves_the_file_as_it_was_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    document = read(path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, fail)
    with pytest.raises(Unwritable, match="No space left on device"):
        document.write("x = 2\n")
    assert path.read_text() == "x = 1\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.py"]


def test_an_unchanged_document_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    inode = path.stat().st_ino
    read(path).write("x = 1\n")
    assert path.stat().st_ino == inode
