"""Tells whether an attribute of self is bound by the methods of its class alone, of all that a file holds."""

from __future__ import annotations

import ast
from collections import defaultdict

from perflint.analysis.facts import Program
from perflint.syntax.walk import path_of

_BINDING = frozenset({"setattr", "delattr"})
_REGISTERING = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


class Attributes:
    """Who names the attributes of the objects of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._named: defaultdict[str, list[ast.Attribute]] = defaultdict(list)
        for node in program.of_type(ast.Attribute):
            self._named[node.attr].append(node)
        self._bound: defaultdict[str, list[ast.expr]] = defaultdict(list)  # the objects, by what is bound of them
        for call in program.of_type(ast.Call):
            last = path_of(call.func).rpartition(".")[2]
            if last in _BINDING and len(call.args) > 1:
                self._bound[str(getattr(call.args[1], "value", ""))].append(call.args[0])
            elif last in _REGISTERING and isinstance(call.func, ast.Attribute) and call.args:
                self._bound[str(getattr(call.args[0], "value", ""))].append(call.func.value)

    def is_own(self, node: ast.Attribute) -> bool:
        """Is it an attribute of self that only methods of the class around bind: no subclass, base or other code?

        Names that are computed (`setattr(model, name, value)`) may be any.
        """
        owner = self._program.class_around(node)
        if owner is None or path_of(node.value) != "self" or self._program.is_edited_elsewhere(node.attr):
            return False
        objects = [each.value for each in self._named[node.attr] if not isinstance(each.ctx, ast.Load)]
        objects += [*self._bound[node.attr], *self._bound[""]]
        return all(self._is_within(each, owner) or not self._may_be(each, owner) for each in objects)

    def edits(self) -> set[str]:
        """The attributes that are bound, or whose values are written, of objects that may be of a foreign class."""
        found = {name for name in self._bound if any(map(self._may_be_foreign, self._bound[name]))}
        return found | {name for name, nodes in self._named.items() if any(map(self._is_foreign_edit, nodes))}

    def _is_foreign_edit(self, node: ast.Attribute) -> bool:
        return self._is_edited(node) and self._may_be_foreign(node.value)

    def _is_edited(self, node: ast.Attribute) -> bool:
        """Is it bound, or its value written: an item of it, in place, by a function whose name says so?"""
        around = self._program.parent(node)
        while isinstance(around, ast.Subscript):
            if not isinstance(around.ctx, ast.Load):
                return True
            around = self._program.parent(around)
        if not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(around, ast.Attribute):
            return around.attr == "data" or (around.attr.endswith("_") and not around.attr.endswith("__"))
        return isinstance(around, ast.Call) and node in around.args and path_of(around.func).endswith("_")

    def _may_be_foreign(self, node: ast.expr) -> bool:
        """May the object be of a class of another file, or of one that derives from such a class?"""
        value = self._program.value(node)
        found = self._program.class_around(node) if path_of(node) == "self" else value.node
        if isinstance(found, ast.ClassDef):
            bases = (base for each in self._program.lineage(found) for base in self._program.base_names(each))
            return any(not base.startswith(("@", "torch.", "builtins.")) for base in bases)
        return not ((_is_of_torch(value.name) and value.sure) or self._is_guarded(node))

    def readers(self, node: ast.Attribute) -> list[ast.Attribute]:
        """The reads of the attribute of that name, of all objects that may be of the class around `node`."""
        owner = self._program.class_around(node)
        found = (each for each in self._named[node.attr] if isinstance(each.ctx, ast.Load))
        return [each for each in found if owner is None or self._may_be(each.value, owner)]

    def _is_within(self, node: ast.expr, owner: ast.ClassDef) -> bool:
        return path_of(node) == "self" and self._program.class_around(node) is owner

    def _may_be(self, node: ast.expr, owner: ast.ClassDef) -> bool:
        """May the object be of the class, or of one that derives from it, or that it derives from?"""
        value = self._program.value(node)
        found = self._program.class_around(node) if path_of(node) == "self" else value.node
        if isinstance(found, ast.ClassDef):
            return found in self._program.lineage(owner) or owner in self._program.lineage(found)
        return not ((_is_of_torch(value.name) and value.sure) or self._is_guarded(node))

    def _is_guarded(self, node: ast.expr) -> bool:
        """Does the code run only where the object is a module of torch: below `if isinstance(module, nn.Linear)`?"""
        child: ast.AST = node
        for parent in self._program.ancestors(node):
            test = parent.test if isinstance(parent, ast.If) and child in parent.body else None
            if isinstance(test, ast.Call) and path_of(test.func) == "isinstance" and len(test.args) == 2:
                one, classes = test.args
                kinds = classes.elts if isinstance(classes, ast.Tuple) else [classes]
                if path_of(one) == path_of(node) and all(_is_of_torch(self._program.qualified(each)) for each in kinds):
                    return True
            child = parent
        return False


def edits_of(program: Program) -> tuple[str, ...]:
    """The attributes that the file edits of objects that may be of classes in other files that it imports."""
    return tuple(sorted(program.get(Attributes).edits() - {""}))


def _is_of_torch(name: str) -> bool:
    return name.startswith("torch.nn.") and name != "torch.nn.Module"
