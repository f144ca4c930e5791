"""Times the findings of the language server: `python -m tests.bench.editor PROJECT FILE`.

FILE, below PROJECT, is opened by an editor's protocol and changed 20 times by a comment in another place, each time
with the code actions of the whole file asked for. Prints when the first findings came, alone and with what the project
tells, which takes long where nothing is in the cache; then the median and the slowest time from the end of the pause
after a change to the findings, what each takes of a core, and the slowest answer of code actions. Exits with 1 where
the median is above 100 ms.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

import psutil
from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pytest_lsp import client_capabilities

from perflint.server.editor import PAUSE

CHANGES, BOUND_MS = 20, 100


async def measure(project: Path, path: Path) -> tuple[list[float], list[float], float]:
    """Milliseconds from the end of the pause after each change to findings, to actions, and the mean of a core's."""
    client = LanguageClient("bench", "1")
    shown: asyncio.Queue[int | None] = asyncio.Queue()

    def published(params: types.PublishDiagnosticsParams) -> None:
        shown.put_nowait(params.version)

    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)
    await client.start_io(sys.executable, "-m", "perflint", "server")
    folders = [types.WorkspaceFolder(project.as_uri(), "project")]
    capabilities = client_capabilities("visual-studio-code")
    await client.initialize_async(types.InitializeParams(capabilities, workspace_folders=folders))
    client.initialized(types.InitializedParams())
    uri, text = path.as_uri(), path.read_text("utf-8")
    document = types.TextDocumentItem(uri, types.LanguageKind.Python, 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    opened = time.perf_counter()
    for known in ("by itself", "with what the project's files tell of it"):
        await shown.get()
        print(f"{known}: {time.perf_counter() - opened:.1f} s", flush=True)
    lines, times, answers = text.splitlines(keepends=True), [], []
    whole = types.Range(types.Position(0, 0), types.Position(len(lines) + 1, 0))
    asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), whole, types.CodeActionContext([]))
    (server,) = psutil.Process().children()
    before = sum(server.cpu_times()[:2])
    for version in range(2, CHANGES + 2):
        where = len(lines) * version // (CHANGES + 2)
        changed = "".join(
            [*lines[:where], *([] if lines[where - 1].endswith("\\\n") else ["# typed\n"]), *lines[where:]]
        )
        start = time.perf_counter()
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=version, uri=uri),
                [types.TextDocumentContentChangeWholeDocument(changed)],
            )
        )
        while await shown.get() != version:
            pass
        times.append((time.perf_counter() - start - PAUSE) * 1000)
        start = time.perf_counter()
        await client.text_document_code_action_async(asked)
        answers.append((time.perf_counter() - start) * 1000)
    of_core = (sum(server.cpu_times()[:2]) - before) / CHANGES * 1000
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]
    return times, answers, of_core


def main() -> int:
    """Measure and print; the exit code."""
    project, path = (Path(each).resolve() for each in sys.argv[1:])
    times, answers, of_core = asyncio.run(measure(project, path))
    length = len(path.read_text("utf-8").splitlines())
    median = statistics.median(times)
    took = f"median {median:.0f} ms, slowest {max(times):.0f} ms, of a core {of_core:.0f} ms"
    print(f"{length} lines: {took}; actions, slowest: {max(answers):.0f} ms; load {os.getloadavg()[0]:.1f}")
    return 0 if median <= BOUND_MS else 1


if __name__ == "__main__":
    sys.exit(main())
