"""Which calls do nothing but put something out: print, log, and tell progress bars and summary writers."""

from __future__ import annotations

import ast

from perflint.analysis.data.origins import Origins
from perflint.analysis.ir.flow import Flow
from perflint.analysis.program import Program
from perflint.syntax.walk import path_of

STREAMS = frozenset({"sys.stdout", "sys.stderr"})
_LEVELS = frozenset("debug info warning warn error critical log".split())
_BARS = frozenset("set_postfix set_postfix_str set_description set_description_str".split())
_WRITERS = frozenset({"add_scalar", "add_scalars"})
_PACKAGES = {  # of the objects that have these methods
    **dict.fromkeys(_LEVELS, ("logging",)),
    **dict.fromkeys(_BARS, ("tqdm",)),
    **dict.fromkeys(_WRITERS, ("torch.utils.tensorboard", "tensorboardX")),
}
_OF_CALL = frozenset({"exc_info", "stack_info", "stacklevel"})  # what a log is told of the place where it is called


def is_output(program: Program, call: ast.Call) -> bool:
    """Does the call put out what it is given, and nothing else, as far as this file tells?"""
    if writes_streams(program, call):
        return not (isinstance(call.func, ast.Attribute) and call.func.attr == "flush")
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _PACKAGES or program.qualified(func):
        return False
    is_here = any(each.name == func.attr for each in program.of_type(ast.FunctionDef))
    if is_here or program.callee(call) is not None or any(keyword.arg in _OF_CALL for keyword in call.keywords):
        return False
    made = _makers(program, func.value)
    packages = _PACKAGES[func.attr]
    if func.attr in _LEVELS:
        return made == {"logging.getLogger"}
    return all(each.startswith(packages) for each in made)


def writes_streams(program: Program, call: ast.Call) -> bool:
    """Does the call write to the standard streams, or to the log of `logging`?"""
    owner, _, name = name_of_library(program, call).rpartition(".")
    if (owner, name) == ("builtins", "print"):
        files = (keyword.value for keyword in call.keywords if keyword.arg in ("file", None))
        return all(program.qualified(each) in STREAMS for each in files)
    if owner in STREAMS:
        return name in ("write", "flush")
    if owner == "logging":
        return name in _LEVELS and not any(keyword.arg in _OF_CALL for keyword in call.keywords)
    return owner.partition(".")[0] == "tqdm" and name == "write"


def name_of_library(program: Program, call: ast.Call) -> str:
    """The qualified name of a function of a library; also of `sys`, where `from ... import *` brings that in."""
    path = path_of(call.func)
    is_given = path.startswith("sys.") and not any(
        each.id == "sys" and not isinstance(each.ctx, ast.Load) for each in program.of_type(ast.Name)
    )
    stars = (alias.name == "*" for each in program.of_type(ast.ImportFrom) for alias in each.names)
    return program.qualified(call.func) or (path if is_given and any(stars) else "")


def is_leveled(call: ast.Call) -> bool:
    """Is it a call of a log, whose first argument is a template for the others?"""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LEVELS


def is_log(program: Program, node: ast.expr) -> bool:
    """Is it a variable of the module, given once, that holds a log?"""
    bindings = program.get(Flow).graph_of(program.tree).bindings
    is_global = isinstance(node, ast.Name) and len(bindings.get(node.id, ())) == 1
    return is_global and _makers(program, node) == {"logging.getLogger"}


def _makers(program: Program, node: ast.expr) -> set[str]:
    """The library's functions that make what `node` holds; "?" for what others make."""
    found = set[str]()
    for source in program.get(Origins).of(node):
        is_none = isinstance(source, ast.Constant) and source.value is None
        if not is_none and not isinstance(source, ast.arg | ast.Attribute):  # those are set by other files
            found.add((program.qualified(source.func) if isinstance(source, ast.Call) else "") or "?")
    return found
