"""The modules of perflint form layers: no circles, nothing imports upwards, wherever in a file the import stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = (  # each may import itself and those above it in this list
    *("syntax", "documents", "torch_ops", "analysis", "transforms", "engine", "api", "report"),
    *("project", "runtime", "shim", "verify", "profile", "tune", "server", "cli", "__main__"),
)
ANYWHERE = {"perflint", "perflint.rules"}  # the version, and the opener of the rules' folder, which import nothing
LOOSE = {"__init__.py", "__main__.py", "api.py", "api.md", "rules.py", "py.typed", "docs"}
FROM_RUNTIME = {"perflint.project"}  # all that programs with our patches import of perflint besides its runtime


@cache
def modules() -> dict[str, Path]:
    """The files of perflint and of the rules, by the names of their modules."""
    found = {}
    for path in (*ROOT.glob("perflint/**/*.py"), *ROOT.glob("rules/**/*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = parts if parts[0] == "perflint" else ("perflint", *parts)
        found[".".join(name[:-1] if name[-1] == "__init__" else name)] = path
    return found


@cache
def imports() -> dict[str, set[str]]:
    """The modules of ours that each of them imports, also for types alone, or in a function."""
    return {name: set(_imported(name, path)) - {name} for name, path in modules().items()}


def _imported(importer: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            package = importer.split(".")[: None if path.name == "__init__.py" else -1]
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield from [name for name in (f"{base}.{alias.name}", base) if name in modules()][:1]


def layer(module: str) -> str:
    """The part of perflint that a module belongs to."""
    return f"{module}.".split(".")[1]


def test_no_module_is_imported_by_what_it_imports() -> None:
    TopologicalSorter(imports()).prepare()  # raises CycleError, which names the circle


def test_nothing_imports_upwards() -> None:
    upwards = {
        f"{importer} imports {imported}"
        for importer, found in imports().items()
        if importer not in ANYWHERE and layer(importer) != "rules"
        for imported in found - ANYWHERE
        if LAYERS.index(layer(imported)) > LAYERS.index(layer(importer))
    }
    assert not upwards


def test_the_api_is_for_rules_alone() -> None:
    assert not [name for name, found in imports().items() if "perflint.api" in found and layer(name) != "rules"]


def test_rules_import_of_perflint_the_api_alone() -> None:
    of_rules = {name: found - {"perflint.api"} for name, found in imports().items() if layer(name) == "rules"}
    assert not {name for name, found in of_rules.items() if any(layer(each) != "rules" for each in found)}


def test_patched_programs_import_hardly_more_than_the_runtime() -> None:
    of_runtime = [found for name, found in imports().items() if layer(name) == "runtime"]
    assert {each for found in of_runtime for each in found if layer(each) != "runtime"} <= FROM_RUNTIME


def test_the_folder_of_perflint_holds_its_layers_and_no_loose_files() -> None:
    entries = {path.name for path in (ROOT / "perflint").iterdir()} - {"__pycache__"}
    assert entries <= {*LAYERS, *LOOSE}


def test_modules_lie_two_folders_deep_at_most() -> None:
    folders = {path.parent.relative_to(ROOT / "perflint") for path in ROOT.glob("perflint/**/*.py")}
    assert not [folder.as_posix() for folder in folders if len(folder.parts) > 2]
