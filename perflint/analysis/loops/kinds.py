"""Classifies loops: step loops (one training or evaluation step per iteration), time loops, others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from perflint.analysis.autograd.effects import trains
from perflint.analysis.autograd.found import GradMode
from perflint.analysis.facts import Program
from perflint.analysis.heat.evaluation import evaluates
from perflint.analysis.heat.freshness import brings_data, steps_an_environment
from perflint.analysis.loops.found import LoopKind, TimeLoop
from perflint.analysis.loops.recognition import time_loop
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import DEFINITIONS, LOOPS, Function, Loop, body_of, children, own_nodes, receiver_of

_OF_CONTAINERS = frozenset(name for kind in (list, dict, set, str) for name in dir(kind)) | {"_replace", "_asdict"}
_TRAINING = ("backward(", ".zero_grad(", ".step(")


class Loops:
    """The kinds of a program's loops, each computed when it is asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kinds: dict[ast.AST, LoopKind] = {}
        self._time_loops: dict[ast.AST, TimeLoop] = {}
        self._trains: dict[ast.AST, bool] = {}
        self._may_train = any(word in program.text for word in _TRAINING) or program.trains_elsewhere

    def kind(self, loop: Loop) -> LoopKind:
        """What one iteration of `loop` is."""
        if loop not in self._kinds:
            self._kinds[loop] = LoopKind.OTHER  # while it is being computed: functions may call each other
            self._kinds[loop] = self._classify(loop)
        return self._kinds[loop]

    def time_loop(self, loop: Loop) -> TimeLoop | None:
        """What is known of `loop` as a loop over time, if it is one."""
        return self._time_loops.get(loop) if self.kind(loop) is LoopKind.TIME else None

    def _classify(self, loop: Loop) -> LoopKind:
        if isinstance(loop, ast.For) and self._program.value(loop.iter).kind is Kind.LOADER:
            return LoopKind.STEP
        found = time_loop(self._program, loop)
        if found is not None:
            self._time_loops[loop] = found
            return LoopKind.TIME
        if isinstance(loop, ast.For) and _is_written_out(loop.iter):
            return LoopKind.OTHER
        nodes = list(self._one_iteration(loop.body))
        is_step = any(isinstance(node, ast.Call) and self._marks_a_step(node) for node in nodes)
        if self._is_rollout(nodes) or (self._is_epoch(nodes) if is_step else not self._is_evaluation(loop, nodes)):
            return LoopKind.OTHER
        own = [node for node in nodes if not self._is_whole_epoch(node)]  # whatever that draws for its own steps
        return LoopKind.STEP if brings_data(self._program, loop, own) else LoopKind.OTHER

    def _is_evaluation(self, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
        return evaluates(self._program, loop, nodes) and not any(
            isinstance(node, LOOPS) and self.kind(node) is not LoopKind.OTHER for node in nodes
        )

    def _is_epoch(self, nodes: Sequence[ast.AST]) -> bool:
        """Do the steps run in a loop inside, so that out here gradients are set to zero, or a model is looked at?"""
        has_steps = any(isinstance(node, LOOPS) and self.kind(node) is LoopKind.STEP for node in nodes)
        return has_steps and not any(self.trains_in(node) and receiver_of(node, "zero_grad") is None for node in nodes)

    def _is_whole_epoch(self, node: ast.AST) -> bool:
        """Is it a call of a function of this file that trains in a loop of steps of its own, and only there?"""
        function = self._program.callee(node) if isinstance(node, ast.Call) else None
        if function is None or not self._may_train or self.trains_once(function):
            return False
        loops = (each for each in own_nodes(function) if isinstance(each, LOOPS))
        return any(self.kind(each) is LoopKind.STEP and any(map(self.trains_in, own_nodes(each))) for each in loops)

    def _one_iteration(self, statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """The nodes that run about once an iteration: not those in step and time loops inside, nor in definitions."""
        stack = list(statements)
        while stack:
            node = stack.pop()
            yield node
            if node.__class__ in DEFINITIONS:
                continue
            if isinstance(node, LOOPS) and self.kind(node) is not LoopKind.OTHER:
                stack.append(node.test if isinstance(node, ast.While) else node.iter)
                continue
            stack.extend(children(node))

    def _marks_a_step(self, node: ast.Call) -> bool:
        """Does `node` train, or run a model without gradients?"""
        if self.trains_in(node):
            return True
        return self._may_be_model(node) and self._program.grad_mode(node, callers=False) is GradMode.OFF

    def _may_be_model(self, node: ast.Call) -> bool:
        callee = self._program.value(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_CONTAINERS:  # of a part of what a model gave
            return False
        if callee.kind in (Kind.MODULE, Kind.TENSOR):  # a tensor can't be called: a model too
            return True
        if callee.owner is not None and callee.owner.kind is Kind.MODULE and isinstance(node.func, ast.Attribute):
            return node.func.attr.startswith("forward")
        return callee.kind is Kind.UNKNOWN and any(self._program.value(argument).on_device for argument in node.args)

    def trains_once(self, function: Function) -> bool:
        """Does calling `function` do one step of training, rather than an epoch of them?"""
        if not self._may_train:
            return False
        if function not in self._trains:
            self._trains[function] = False
            nodes = list(self._one_iteration(body_of(function)))
            self._trains[function] = any(map(self.trains_in, nodes)) and not self._is_epoch(nodes)
        return self._trains[function]

    def trains_in(self, node: ast.AST) -> bool:
        """Is `node` a call that trains, by itself or in the function that it reaches?"""
        if not isinstance(node, ast.Call):
            return False
        if trains(self._program, node) or any(summary.trains for summary in self._program.summaries(node)):
            return True
        callee = self._program.callee(node)
        return callee is not None and self.trains_once(callee)

    def _is_rollout(self, nodes: Sequence[ast.AST]) -> bool:
        """Does each iteration play an episode, in a loop of its own, before it trains?"""
        inner = (node for node in nodes if isinstance(node, LOOPS))
        return any(
            steps_an_environment(self._program, node) for each in inner for node in self._one_iteration(each.body)
        )


def _is_written_out(walked: ast.expr) -> bool:
    """Is it a list of constants, such as sizes to try out?"""
    parts = (ast.List, ast.Tuple, ast.Constant, ast.Load, ast.UnaryOp, ast.USub)
    return isinstance(walked, ast.List | ast.Tuple) and all(isinstance(each, parts) for each in ast.walk(walked))
