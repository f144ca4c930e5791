"""Answers an editor: checks what it holds in the project around it, and offers fixes and the pages of rules."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from perflint import __version__
from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable
from perflint.documents.document import decode
from perflint.engine import UserError
from perflint.engine.catalogue import rules_by_name
from perflint.engine.check import check_bytes
from perflint.engine.results import FileResult, RunResult
from perflint.profile.result import with_known_costs
from perflint.project import project_of
from perflint.project.files import RulesByFile, discover, forced_out
from perflint.project.patch import patch_document
from perflint.project.run import check_files
from perflint.project.settings import COMMAND_LINE, DEFAULT, READERS, Settings, load
from perflint.report import page
from perflint.server.protocol import FIX_ALL, Checked, Unit
from perflint.verify.verdicts import with_gains

PAUSE = 0.15  # seconds without a change before a text is checked
_NOTEBOOKS = types.NotebookDocumentSyncOptions(  # all cells, so that they are numbered as in the file
    [types.NotebookDocumentFilterWithNotebook(notebook="*")], save=True
)


@dataclass(frozen=True)
class Workspace:
    """A project's folder, its settings as in `start`, and by path what files on disk tell of each other."""

    root: Path
    start: Path
    settings: Settings
    contexts: Mapping[str, Context]

    @classmethod
    def around(cls, folder: Path, overrides: Mapping[str, object]) -> Workspace:
        """Not read yet. Raises UserError."""
        root = project_of(folder)
        resolved = load(folder, overrides={**overrides, "force-exclude": True})
        is_configured = any(each not in (DEFAULT, COMMAND_LINE) for each in resolved.origins.values())
        settings = resolved.settings if is_configured else replace(resolved.settings, root=root)
        return cls(root, folder, settings, {})

    def read(self) -> Workspace:
        discovery = discover([self.root], self.settings, may_be_empty=True)
        return replace(self, contexts=check_files(discovery, self.settings).contexts)

    def check(self, path: Path, data: bytes, *, edits: bool = False) -> FileResult:
        if reason := forced_out(path, self.settings):
            return FileResult(str(path), skipped=reason)
        rules = RulesByFile(self.settings).at(path)
        options, context = self.settings.rules, self._context(path)
        result, _ = check_bytes(str(path), data, rules, options, context, edits=edits, linked=False)
        known = with_gains(RunResult((result,), 0.0), self.root)
        return with_known_costs(known, self.root, {str(path): data}).files[0]

    def fixed(self, path: Path, data: bytes) -> bytes:
        try:
            document = decode(str(path), data)
        except Unreadable:
            return data
        rules, context = RulesByFile(self.settings).at(path), self._context(path)
        patch = patch_document(document, rules, self.settings.rules, unsafe=self.settings.unsafe, context=context)
        return document.encode(patch.after) if patch.changed else data

    def _context(self, path: Path) -> Context:
        return self.contexts.get(str(path), ALONE)


@dataclass(frozen=True)
class _Snapshot:
    path: Path
    data: bytes
    units: dict[int | None, Unit]


class _Text(TextDocument):
    """A text with the protocol's line ends; pygls also splits at form feeds and the like."""

    @property
    def lines(self) -> Sequence[str]:
        return tuple(io.StringIO(self.source, newline=""))


class Editor(LanguageServer):
    """One editor's server, with the findings in each open document, by its URI."""

    def __init__(self) -> None:
        super().__init__("perflint", __version__, notebook_document_sync=_NOTEBOOKS)
        self.overrides: Mapping[str, object] = {}
        self._checked: dict[str, Checked] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._workspaces: dict[Path, Workspace] = {}
        self._reader: asyncio.Future[None] | None = None
        self._checking, self._reading = asyncio.Lock(), asyncio.Lock()

    def configure(self, settings: Any) -> None:
        given = settings.get("perflint", settings) if isinstance(settings, Mapping) else {}
        self.overrides = {key: value for key, value in given.items() if key in READERS}
        self._workspaces.clear()

    # -- checking

    def check_soon(self, uri: str, pause: float = PAUSE) -> None:
        if waiting := self._waiting.pop(uri, None):
            waiting.cancel()
        self._waiting[uri] = asyncio.ensure_future(self._check_after(uri, pause))

    async def check_all(self) -> None:
        """Read the projects and their settings anew, from the cache what has not changed; check all open documents.

        Where settings can't be read any more, those before hold.
        """
        async with self._reading:
            for root, workspace in [*self._workspaces.items()]:
                try:
                    now = Workspace.around(workspace.start, self.overrides)
                except UserError as error:
                    self._show(error)
                    now = workspace
                self._workspaces[root] = await asyncio.to_thread(now.read)
                gc.collect()
                gc.freeze()  # else full collections, as somebody types, would look through all of this
        for uri in [*self._checked]:
            self.check_soon(uri, 0)

    async def _check_after(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        snapshot = self._snapshot(uri)
        try:
            workspace = self._workspace_of(snapshot.path)
            async with self._checking:
                result = await asyncio.to_thread(workspace.check, snapshot.path, snapshot.data)
        except UserError as error:
            self._show(error)
            return
        checked = self._checked[uri] = Checked(
            result, snapshot.units, self.workspace.position_codec.position_to_client_units
        )
        for cell, unit in snapshot.units.items():
            shown = types.PublishDiagnosticsParams(unit.uri, checked.diagnostics(cell), unit.version)
            self.text_document_publish_diagnostics(shown)

    def _workspace_of(self, path: Path) -> Workspace:
        """The project around a file; a new one is read meanwhile, and open documents are checked again then."""
        root = project_of(path.parent)
        if root not in self._workspaces:
            self._workspaces[root] = Workspace.around(path.parent, self.overrides)
            self._reader = asyncio.ensure_future(self.check_all())
        return self._workspaces[root]

    def forget(self, uri: str) -> None:
        if waiting := self._waiting.pop(uri, None):
            waiting.cancel()
        checked = self._checked.pop(uri, None)
        for unit in checked.units.values() if checked else ():
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(unit.uri, []))

    def _snapshot(self, uri: str) -> _Snapshot:
        book = self.workspace.get_notebook_document(notebook_uri=uri)
        if book is None:
            text = self.workspace.get_text_document(uri)
            return _Snapshot(_path(uri), text.source.encode(), {None: Unit(uri, text.version, text.lines)})
        cells: list[dict[str, Any]] = []
        units: dict[int | None, Unit] = {}
        for at, cell in enumerate(book.cells):
            text = self.workspace.get_text_document(cell.document)
            if cell.kind is not types.NotebookCellKind.Code or text.language_id != "python":
                cells.append({"cell_type": "markdown", "metadata": {}, "source": ""})
                continue
            units[at] = Unit(text.uri, text.version, text.lines)
            rest: dict[str, Any] = {"metadata": {}, "outputs": [], "execution_count": None}
            cells.append({"cell_type": "code", "source": text.source, **rest})
        data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
        return _Snapshot(_path(uri).with_suffix(".ipynb"), data, units)

    # -- answers

    async def actions(self, uri: str, asked: types.Range, only: list[Any] | None) -> list[types.CodeAction]:
        """The fixes of what was found in a range, and all of the document's fixes that need no asking, as one.

        Without their edits, which take longer to write than to find, where the client asks for them by itself.
        """
        found = self._found(uri)
        if found is None:
            return []
        document, checked, cell = found
        kinds = [str(getattr(each, "value", each)) for each in only or ("quickfix", "source.fixAll")]
        actions = [*checked.actions(document, cell, asked)] if "quickfix" in kinds else []
        if any(FIX_ALL.startswith(each) for each in kinds) and cell is None:
            actions += checked.all_at_once(document)
        capabilities = self.client_capabilities.text_document
        ability = capabilities and capabilities.code_action and capabilities.code_action.resolve_support
        if ability and "edit" in ability.properties:
            return actions
        return [each for each in [await self.resolved(each) for each in actions] if each.edit]

    async def resolved(self, action: types.CodeAction) -> types.CodeAction:
        """The action with its edit; without one where the document has changed since, or the fix can't be written."""
        document, *fix = action.data or ("",)
        checked = self._checked.get(document)
        if checked is None or (snapshot := self._snapshot(document)).units != checked.units:
            return action
        try:
            workspace = self._workspace_of(snapshot.path)
            async with self._checking:
                if fix:
                    result = await asyncio.to_thread(workspace.check, snapshot.path, snapshot.data, edits=True)
                    action.edit = replace(checked, result=result).edit(*fix)
                else:
                    action.edit = checked.whole(await asyncio.to_thread(workspace.fixed, snapshot.path, snapshot.data))
        except UserError as error:
            self._show(error)
        return action

    def _show(self, error: UserError) -> None:
        self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"perflint: {error}"))

    def hovered(self, uri: str, place: types.Position) -> types.Hover | None:
        found = self._found(uri)
        return found[1].hover(found[2], place, lambda rule: page(rules_by_name()[rule])) if found else None

    def _found(self, uri: str) -> tuple[str, Checked, int | None] | None:
        for document, checked in self._checked.items():
            for cell, unit in checked.units.items():
                if unit.uri == uri and unit.version == self.workspace.get_text_document(uri).version:
                    return document, checked, cell
        return None


def _path(uri: str) -> Path:
    return Path(uris.to_fs_path(uri) or uri.rpartition(":")[2]).resolve()


def _uri(params: Any) -> str:
    document: Any = getattr(params, "text_document", None) or params.notebook_document
    return str(document.uri)


def server() -> Editor:
    editor = Editor()

    @editor.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        codec = editor.workspace.position_codec
        editor.workspace._create_text_document = partial(_Text, position_codec=codec)  # type: ignore[method-assign]
        editor.configure(params.initialization_options or {})

    @editor.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        editor.configure(params.settings or {})
        await editor.check_all()

    @editor.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        await editor.check_all()

    @editor.feature(types.TEXT_DOCUMENT_DID_OPEN)
    @editor.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    async def opened(params: Any) -> None:
        editor.check_soon(_uri(params), 0)

    @editor.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    @editor.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def changed(params: Any) -> None:
        editor.check_soon(_uri(params))

    @editor.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    @editor.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    async def closed(params: Any) -> None:
        editor.forget(_uri(params))

    kinds: list[Any] = [types.CodeActionKind.QuickFix, FIX_ALL]

    options = types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True)

    @editor.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await editor.actions(
            params.text_document.uri, params.range, [*params.context.only] if params.context.only else None
        )

    @editor.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await editor.resolved(action)

    @editor.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        return editor.hovered(params.text_document.uri, params.position)

    return editor
