"""Names the function that an outlined step becomes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.region import Region
from perflint.transforms.names import Taken

_NAMES = ("step", "train_step", "training_step", "graphed")
_WORDS = ("optimizer", "optimiser", "optim", "opt")


def step_name(program: Program, region: Region, owner: str, results: Sequence[str], taken: Taken) -> str:
    """What to call the function: by its optimizer, where that is one of several, or by its first result.

    `owner` is `self` or the like where it becomes a method. Raises Blocked where no name is free.
    """
    paths = {ast.unparse(each.func.value) for each in region.steps if isinstance(each.func, ast.Attribute)}
    last = paths.pop().rpartition(".")[2].lower() if len(paths) == 1 else ""
    word = next((each for each in _WORDS if each in last), "")
    stem = last.replace(word, "").strip("_")
    names = [f"{stem}_step", *_NAMES] if word and stem.isidentifier() else list(_NAMES)
    if region.eager:
        names = ["compute_gradients"]
    if region.pure:
        names = [f"compute_{results[0]}" if results else _NAMES[-1]]
    if isinstance(region.around, ast.FunctionDef):
        function = region.around.name.strip("_")
        is_named = region.pure or function.endswith(names[0])
        private = "__" if owner else "_"  # a method's is mangled: a class below may have one like it
        names = [f"{private}graphed_{function}" if is_named else f"{private}{function}_{names[0]}"]
        if names[0] in program.text or _is_defined_again(program, region.around):
            raise Blocked(f"there is a `{names[0]}` already: decorate the step by hand", region.scope)
    return taken.fresh(next((each for each in names if each not in taken.names), names[0]))


def _is_defined_again(program: Program, function: ast.FunctionDef) -> bool:
    """Is another function of its scope called so, too?"""

    def scope(node: ast.AST) -> ast.AST:
        return next(
            each for each in program.ancestors(node) if isinstance(each, (*FUNCTIONS, ast.ClassDef, ast.Module))
        )

    others = (each for each in program.of_type(ast.FunctionDef) if each.name == function.name and each is not function)
    return any(scope(each) is scope(function) for each in others)
