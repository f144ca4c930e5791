"""`perflint server`, by a client that speaks to it as editors do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.lsp.client import LanguageClient as Client
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

SLOW = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()  # ü
    return total
"""


@pytest_lsp.fixture(
    scope="module",
    loop_scope="module",
    config=ClientServerConfig(server_command=[sys.executable, "-m", "perflint", "server"]),
)  # type: ignore[untyped-decorator]
async def client(lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    root = tmp_path_factory.mktemp("project")
    (root / "perflint.toml").write_text("")
    params = types.InitializeParams(
        capabilities=client_capabilities("visual-studio-code"),
        workspace_folders=[types.WorkspaceFolder(root.as_uri(), "project")],
    )
    await lsp_client.initialize_session(params)
    lsp_client.root = root  # type: ignore[attr-defined]
    yield
    await lsp_client.shutdown_session()


def _open(client: LanguageClient, name: str, text: str, language: str = "python") -> str:
    path: Path = client.root / name  # type: ignore[attr-defined]
    path.write_text(text)
    uri = path.as_uri()
    client.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, types.LanguageKind.Python, 1, text))
    )
    return uri


async def _shown(client: LanguageClient, uri: str, count: int | None = None) -> list[types.Diagnostic]:
    """What is shown, once it is as many as `count`."""
    while (count is not None and len(client.diagnostics.get(uri, ())) != count) or uri not in client.diagnostics:
        await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return [*client.diagnostics[uri]]


@pytest.mark.asyncio(loop_scope="module")
async def test_findings_appear_when_a_file_is_opened_and_go_when_it_is_mended(client: LanguageClient) -> None:
    uri = _open(client, "train.py", SLOW)
    (found,) = await _shown(client, uri)
    assert (found.code, found.source, found.severity) == ("item-in-loop", "perflint", types.DiagnosticSeverity.Warning)
    assert (found.range.start.line, found.range.start.character) == (9, 22)
    assert "fix: " in found.message
    document = types.VersionedTextDocumentIdentifier(version=2, uri=uri)
    change = types.TextDocumentContentChangeWholeDocument(SLOW.replace("loss.item()", "0"))
    client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
    assert await _shown(client, uri, 0) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_fix_is_offered_where_the_finding_is(client: LanguageClient) -> None:
    uri = _open(client, "fixed.py", SLOW)
    (found,) = await _shown(client, uri)
    context = types.CodeActionContext([found])
    asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, context)
    quick, everything = await client.text_document_code_action_async(asked) or ()
    assert isinstance(quick, types.CodeAction) and isinstance(everything, types.CodeAction)
    assert quick.is_preferred and "(exact)" in quick.title
    assert quick.edit is everything.edit is None
    assert any("detach" in each.new_text for each in await _edits(client, quick))
    assert everything.kind == "source.fixAll.perflint"
    elsewhere = types.Range(types.Position(0, 0), types.Position(0, 1))
    only = types.CodeActionContext([], only=[types.CodeActionKind.QuickFix])
    asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), elsewhere, only)
    assert not await client.text_document_code_action_async(asked)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_client_that_asks_for_no_edits_is_given_them_at_once(tmp_path: Path) -> None:
    client, path = Client("plain", "1"), tmp_path / "plain.py"
    shown = asyncio.Event()
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda _: shown.set())
    await client.start_io(sys.executable, "-m", "perflint", "server")
    try:
        await client.initialize_async(types.InitializeParams(types.ClientCapabilities(), root_uri=tmp_path.as_uri()))
        document = types.TextDocumentItem(path.as_uri(), types.LanguageKind.Python, 1, SLOW)
        client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        await shown.wait()
        everything = types.Range(types.Position(0, 0), types.Position(99, 0))
        context = types.CodeActionContext([])
        asked = types.CodeActionParams(types.TextDocumentIdentifier(path.as_uri()), everything, context)
        actions = await client.text_document_code_action_async(asked) or ()
        assert [isinstance(each, types.CodeAction) and bool(each.edit) for each in actions] == [True, True]
        await client.shutdown_async(None)
        client.exit(None)
    finally:
        await client.stop()  # type: ignore[no-untyped-call]


@pytest.mark.asyncio(loop_scope="module")
async def test_lines_end_where_the_protocol_ends_them(client: LanguageClient) -> None:
    text = SLOW.replace("import torch\n", 'import torch\n\f\nWORDS = "a\u2028b"\n', 1)
    uri = _open(client, "pages.py", text)
    await _shown(client, uri, 1)
    start = types.Position(11, 0)
    typed = types.TextDocumentContentChangePartial(types.Range(start, start), "        print(x)\n")
    document = types.VersionedTextDocumentIdentifier(version=2, uri=uri)
    client.diagnostics.pop(uri)
    client.text_document_did_change(types.DidChangeTextDocumentParams(document, [typed]))
    (found,) = await _shown(client, uri)
    assert (found.range.start, found.range.end) == (types.Position(12, 22), types.Position(12, 28))
    asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
    quick, everything = await client.text_document_code_action_async(asked) or ()
    (changed,) = [each for each in await _edits(client, quick) if "detach" in each.new_text]
    assert changed.range == types.Range(types.Position(12, 22), types.Position(12, 26))
    (whole,) = await _edits(client, everything)
    lines = whole.new_text.split("\n")
    assert lines[2:5] == ['WORDS = "a\u2028b"', "", ""] and lines[11] == "        print(x)"
    assert "total += loss.detach()" in lines[12]


async def _edits(client: LanguageClient, action: types.CodeAction | types.Command) -> list[types.TextEdit]:
    assert isinstance(action, types.CodeAction)
    action = await client.code_action_resolve_async(action)
    assert action.edit and action.edit.document_changes
    changes = [each for each in action.edit.document_changes if isinstance(each, types.TextDocumentEdit)]
    return [edit for each in changes for edit in each.edits if isinstance(edit, types.TextEdit)]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_hover_shows_the_page_of_the_rule(client: LanguageClient) -> None:
    uri = _open(client, "hover.py", SLOW)
    (found,) = await _shown(client, uri)
    place = types.HoverParams(types.TextDocumentIdentifier(uri), found.range.start)
    hover = await client.text_document_hover_async(place)
    assert hover is not None and "# item-in-loop" in hover.contents.value  # type: ignore[union-attr]
    place = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 0))
    assert await client.text_document_hover_async(place) is None


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_python_is_said_in_its_line(client: LanguageClient) -> None:
    uri = _open(client, "broken.py", "import torch\ndef f(:\n")
    (found,) = await _shown(client, uri)
    assert (found.severity, found.range.start.line) == (types.DiagnosticSeverity.Error, 1)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_cells_of_a_notebook_are_one_program(client: LanguageClient) -> None:
    first, second = SLOW.partition("    for x")[0] + "    pass\n", SLOW.replace("import torch\n", "")
    cells = [("m", "# a title", types.NotebookCellKind.Markup), ("a", first, types.NotebookCellKind.Code)]
    cells.append(("b", second, types.NotebookCellKind.Code))
    root: Path = client.root  # type: ignore[attr-defined]
    base = (root / "book.ipynb").as_uri()
    items = [
        types.TextDocumentItem(
            f"{base}#{name}",
            types.LanguageKind.Markdown if kind is types.NotebookCellKind.Markup else types.LanguageKind.Python,
            1,
            text,
        )
        for name, text, kind in cells
    ]
    book = types.NotebookDocument(
        base, "jupyter-notebook", 1, [types.NotebookCell(kind, f"{base}#{name}") for name, _, kind in cells]
    )
    client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(book, items))
    (found,) = await _shown(client, f"{base}#b")
    assert (found.code, found.range.start.line) == ("item-in-loop", 8)
    assert "(loop in line 5 of cell 2)" in found.message
    assert await _shown(client, f"{base}#a") == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_settings_of_the_editor_hold(client: LanguageClient) -> None:
    uri = _open(client, "settings.py", SLOW)
    assert len(await _shown(client, uri)) == 1
    client.workspace_did_change_configuration(
        types.DidChangeConfigurationParams({"perflint": {"ignore": ["item-in-loop"]}})
    )
    assert await _shown(client, uri, 0) == []
    client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"perflint": {}}))
    await _shown(client, uri, 1)


@pytest.mark.asyncio(loop_scope="module")
async def test_changed_settings_of_the_project_hold_from_the_next_save(client: LanguageClient) -> None:
    uri = _open(client, "saved.py", SLOW)
    await _shown(client, uri, 1)
    settings: Path = client.root / "perflint.toml"  # type: ignore[attr-defined]
    saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
    settings.write_text('ignore = ["item-in-loop"]')
    client.text_document_did_save(saved)
    assert await _shown(client, uri, 0) == []
    settings.write_text('ignore = ["itm-in-loop"]')
    client.text_document_did_save(saved)
    while not any("itm-in-loop" in each.message for each in client.messages):
        await client.wait_for_notification(types.WINDOW_SHOW_MESSAGE)
    settings.write_text("")
    client.text_document_did_save(saved)
    await _shown(client, uri, 1)
