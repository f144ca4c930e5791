"""Tells whether calling something in a program may be more than running its body: hooks, wrappers, scripts."""

from __future__ import annotations

import ast
import re

from perflint.analysis.facts import Program

_HOOK = re.compile(r"register_\w*hook")
_HOOKS = re.compile(
    r"register_(forward|backward|module|full)_\w*hook|register_parametrization|parametri(ze|zations)"
    r"|spectral_norm|weight_norm|prune|quantization|quantize_dynamic"
)
_WRAPPERS = frozenset(
    "DataParallel DistributedDataParallel FullyShardedDataParallel compile jit checkpoint checkpoint_sequential".split()
)
_COMMON = frozenset({"checkpoint", "compile", "jit", "prune"})  # names of much else, too: only torch's are meant


def registers_hooks(program: Program) -> bool:
    """Does the program have torch call something of its own with each forward or backward?"""
    return any(map(_HOOK.fullmatch, program.get(_words)))


def may_be_hooked(program: Program) -> bool:
    """Does the program use what adds to the calls of torch's modules, or replaces their weights, or them?"""
    return any(map(_HOOKS.fullmatch, program.get(_words))) or program.get(_replaces_modules)


def may_be_wrapped(program: Program) -> bool:
    """Does the program use what may stand for a module or a function of its own?"""
    return may_be_hooked(program) or not program.get(_words).isdisjoint(_WRAPPERS)


def is_scripted(program: Program) -> bool:
    """Does the program use torch.jit, which does not know torch.vmap?"""
    return "jit" in program.get(_words)


def _replaces_modules(program: Program) -> bool:
    """Is something of the program's own put in the place of a class or function of torch: `nn.Linear = Linear`?"""
    stored = (node for node in program.of_type(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(program.qualified(node.value).startswith("torch.nn") for node in stored)


def _words(program: Program) -> frozenset[str]:
    """What the program imports and calls by its name, and the attributes that it reads."""
    words = {node.func.id for node in program.of_type(ast.Call) if isinstance(node.func, ast.Name)} - _COMMON
    for node in program.of_type(ast.Attribute):
        name = program.qualified(node)
        if node.attr not in _COMMON or name.startswith("torch.") or (node.attr == "compile" and not name):
            words.add(node.attr)
    for statement in program.of_type(ast.ImportFrom):
        words.update((statement.module or "").split("."), _imported(statement.names))
    for imported in program.of_type(ast.Import):
        words.update(_imported(imported.names))
    return frozenset(words)


def _imported(names: list[ast.alias]) -> set[str]:
    return {word for alias in names for word in alias.name.split(".")}
