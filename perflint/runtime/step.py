"""`graphed_step`: replays a whole step of training, backward pass and optimizers included, as one CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.optim import optimizer as hooks

from perflint.runtime import optimizers as optim
from perflint.runtime.records import Graphed, Record, Records, name_of
from perflint.runtime.refusal import CannotCapture, Facts, Unsettled, can_capture, explain, inside
from perflint.runtime.replay import Call, Capture, Recorder, copies, copy_into, distinct, flatten, launch, settle, twin
from perflint.runtime.scene import Gradient, Pattern, Recall, Scene, Showed, aside, watch
from perflint.runtime.scope import plain_function
from perflint.runtime.walk import Arguments, Walk

P = ParamSpec("P")
R = TypeVar("R")
_PATTERNS = 4  # of which gradients a step replaces
_SET_UPS = 16  # eager calls that may create optimizers' states
_TAPE = torch.empty(0, requires_grad=True)  # that there is a tape behind results
_HELD = "stays eager while gradients of an earlier step are held"
_RESEEDED = "the random numbers are seeded again, for which cuDNN makes the dropout inside an RNN another state"


def graphed_step(function: Callable[P, R]) -> GraphedStep[P, R]:
    """Decorate a function of one training step so that it runs as one CUDA graph, with the results of eager mode.

        @graphed_step
        def step(images, labels):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

    The first calls are eager, one is captured, later ones are replayed: the Python code doesn't run then. A graph
    belongs to the shapes, strides and types of the tensors among the arguments, to the values of the others, to the
    addresses of parameters, buffers, gradients and optimizer states, to training mode, autocast, `requires_grad` and
    the settings of the optimizers' groups; a batch of another shape runs eagerly until it comes a second time.

    Learning rates stay the numbers that schedulers and the user's code set; Adam and AdamW read a copy on the device,
    for other optimizers another rate is another graph. Adam and its kin step in their capturable form, which differs
    from the usual one by rounding; their state dicts stay as they were. `.grad` is what eager mode leaves there.
    Results are copies; a backward pass through one raises, as a second one does in eager mode. One may be an argument
    of the next call, as the state of a recurrent model is, where the step detaches it before it computes gradients.

    Stays eager, with one RuntimeWarning that says why: reads of the host (`.item()`, `if tensor:`), gradient scalers,
    LBFGS, sparse gradients, hooks, schedulers stepped inside, attributes that are assigned, random numbers of the
    host, several processes, whatever fails to be captured. While the user's code holds gradients of an earlier step,
    steps are eager. Without torch.cuda the function is called unchanged.

    Distributions of torch.distributions have the device check their arguments: what is invalid raises ValueError as
    soon as the host hears of it, in one of the next calls.

    Limits: what the function does besides computing (printing, counting) happens only while it isn't replayed.

    Raises TypeError for generator functions, coroutines and what can't be called.
    """
    return GraphedStep(function)


class _Known:
    """What is known of a step's code: local functions of the same code share it."""

    def __init__(self, function: Callable[..., Any], code: object) -> None:
        self.records, self.code = Records(name_of(function)), code
        self.patterns: list[Pattern] = []
        self.pools: dict[int, Any] = {}  # by stream: one after the other, graphs may use the same memory
        self.set_ups = 0
        self._told: set[str] = set()

    def clear(self) -> None:
        self.patterns.clear()
        self.pools.clear()
        self._told.clear()
        self.set_ups = 0

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.records.warn(text)


_known: dict[int, _Known] = {}  # by the identity of code, which the values keep


class GraphedStep(Graphed[P, R]):
    """What `graphed_step` returns: called like the function, and a method where the function would be one."""

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function, "graphed_step")
        plain = plain_function(function)
        code: CodeType | object = plain.__code__ if plain else function
        self._known = _known.setdefault(id(code), _Known(function, code))
        self._records = self._known.records
        self._recall = Recall()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self.__wrapped__
        if not can_capture() or torch.is_anomaly_enabled() or torch.is_grad_enabled() in self._records.refused:
            return function(*args, **kwargs)
        call = Call(function, *flatten((args, kwargs)))
        return self._step(call)  # type: ignore[no-any-return]

    def clear(self) -> None:
        super().clear()
        self._known.clear()
        self._recall.forget()

    def _scene(self, call: Call) -> Scene:
        return Scene(Walk(self._records.scope_of(call.function), call.function, call.structure, call.leaves))

    def _step(self, call: Call) -> Any:
        with self._records.lock:
            arguments = Arguments(call.structure, call.leaves)
            key = self._recall.find(call.function, arguments)
            record = self._records.find(key) if key is not None else None
            capture = record.capture if record is not None else None
            if capture is not None and not capture.is_held() and not capture.is_reseeded():
                self._records.replayed()
                return capture(arguments.inputs)
        return self._anew(call)

    def _replay(self, capture: StepReplay, call: Call, scene: Scene) -> Any:
        """Take the step of a call by its graph; the verifier takes it eagerly beside."""
        return capture(scene.walk.inputs)

    def eagerly(self, call: Call, scene: Scene) -> Any:
        with optim.capturable(scene.optimizers), aside(scene.walk), inside():
            return call.run({})

    def _anew(self, call: Call) -> Any:
        scene, known = self._scene(call), self._known
        if not scene.walk.devices:
            return call.run({})
        if reason := scene.refusal:
            return self._refuse(reason, scene, call)
        with self._records.lock:
            gradients = scene.gradients()
            for pattern in known.patterns:
                record = self._records.find(scene.key(pattern, gradients))
                if record is None:
                    continue
                if record.capture is None and (reason := self._capture(record, call, scene)):
                    return self._refuse(reason, scene, call)
                if record.capture.is_reseeded():
                    return self._refuse(_RESEEDED, scene, call)
                if record.capture.is_held():
                    known.tell(_HELD)
                    break
                self._recall.note(call.function, scene, record.key, pattern)
                self._records.replayed()
                return self._replay(record.capture, call, scene)
            else:
                return self._eager(call, scene)
            return self.eagerly(call, scene)

    def _refuse(self, reason: str, scene: Scene, call: Call) -> Any:
        self._records.refuse(torch.is_grad_enabled(), reason)
        optim.restore(scene.optimizers)
        return call.run({})

    def _eager(self, call: Call, scene: Scene) -> Any:
        """Take a step eagerly, and remember what it showed, unless it has set something up."""
        mode, known = torch.is_grad_enabled(), self._known
        while scene.walk.scope.learn((*scene.walk.modules, *scene.walk.objects, call.function)):
            scene = self._scene(call)
        optim.renew(scene.optimizers)
        read, addresses, gradients = scene.read(), optim.addresses(scene.optimizers), scene.gradients()
        try:
            with optim.capturable(scene.optimizers):
                result, showed = watch(scene, partial(call.run, {}))
            if read != self._scene(call).read():
                raise Unsettled("it assigns attributes, globals or items of what it reads, or changes a module", result)
        except CannotCapture as refusal:
            self._records.doubt(mode, refusal)
            if mode in self._records.refused:
                optim.restore(scene.optimizers)
            return refusal.args[1]
        is_set_up = addresses == optim.addresses(scene.optimizers)
        if optim.prepare(scene.optimizers) or not is_set_up:
            known.set_ups += 1
            reason = "its optimizers' states are others after each step" if known.set_ups > _SET_UPS else ""
        else:
            reason = self._remember(scene, showed, gradients)
        if reason:
            self._records.refuse(mode, reason)
            optim.restore(scene.optimizers)
        return result

    def _remember(self, scene: Scene, showed: Showed, gradients: list[Gradient | None]) -> str:
        """Add a record of what was seen; return why no more are added."""
        patterns = self._known.patterns
        if showed.pattern not in patterns:
            patterns.append(showed.pattern)
            del patterns[:-_PATTERNS]
        walk = scene.walk
        objects = (*walk.modules, *walk.objects, *walk.state, *scene.leaves)
        if self._records.add(scene.key(showed.pattern, gradients), Facts((), showed.written), objects, showed):
            return ""
        return "its arguments, or what else it reads, differ from call to call"

    def _capture(self, record: Record, call: Call, scene: Scene) -> str | None:
        stream = torch.cuda.current_stream().cuda_stream
        try:
            with inside():
                capture = StepReplay(call, scene, record.notes, self._known.pools.get(stream))
            self._known.pools[stream] = capture.pool
            return self._records.keep(record, capture)
        except Exception as error:
            return explain(error)


class StepReplay(Capture):
    """A whole step as one graph. The gradients that it makes keep their memory, and lie there after each replay."""

    def __init__(self, call: Call, scene: Scene, showed: Showed, pool: Any) -> None:
        walk, leaves = scene.walk, scene.leaves
        self._recorder = Recorder(walk.devices, (), pool)
        self._statics = [twin(tensor) for tensor in walk.inputs]
        self._cores = [distinct(static) for static in self._statics]
        self._optimizers, self._stepped = scene.optimizers, showed.stepped
        copy_into(self._cores, [distinct(tensor) for tensor in walk.inputs])
        places = {id(tensor): static for tensor, static in zip(walk.inputs, self._statics, strict=True)}
        kept = {id(tensor): tensor for tensor in walk.state}
        before, carried = [leaf.grad for leaf in leaves], showed.pattern.carried
        self._carried = [
            (leaf, twin(was))
            for leaf, was in zip(leaves, before, strict=True)
            if was is not None and id(leaf) in carried
        ]
        self._carry()
        try:
            for leaf, static in self._carried:
                leaf.grad = static
            with optim.capturable(scene.optimizers), _without_hooks():
                self._graph, outcome = self._recorder.record(lambda: settle(call.run(places), self._statics, kept))
            after = [leaf.grad for leaf in leaves]
        finally:
            _give(leaves, before)
        self._recorded = [tensor.requires_grad for tensor in outcome.tensors]
        self._outcome = replace(outcome, tensors=[tensor.detach() for tensor in outcome.tensors])
        pairs = zip(leaves, before, after, strict=True)
        self._exits = [(leaf, now) for leaf, was, now in pairs if now is not was]
        self._kept = [leaf for leaf in leaves if id(leaf) in showed.pattern.kept]
        self._written = showed.written
        self._made = [(leaf, gradient) for leaf, gradient in self._exits if gradient is not None]
        if any(gradient.requires_grad for _, gradient in self._made):
            raise CannotCapture("it leaves gradients that can be differentiated")
        self._places = [gradient.untyped_storage() for _, gradient in self._made]
        del after, pairs, outcome
        self._least = [self._users_if(has_them) for has_them in (False, True)]
        is_random = any(isinstance(each, nn.RNNBase) and each.training and each.dropout for each in walk.modules)
        self._generator = torch.cuda.default_generators[self._recorder.device.index] if is_random else None
        self._drawn = self._randomness()

    @property
    def pool(self) -> Any:
        """The memory that its graph uses, and others may."""
        return self._recorder.pool

    def is_held(self) -> bool:
        """Whether somebody else still has a gradient of the last replay, or a view of one."""
        users = self._users()
        least = (self._least[leaf.grad is gradient] for leaf, gradient in self._made)
        return any(count > each[number] for number, (count, each) in enumerate(zip(users, least, strict=True)))

    def is_reseeded(self) -> bool:
        """Whether the random numbers of the device began anew, and with them the dropout that cuDNN keeps to itself."""
        (seed, offset), (known, last) = self._randomness(), self._drawn
        return seed != known or offset < last

    def _randomness(self) -> tuple[int, int]:
        """The seed of the device's generator and how far it has come, where cuDNN takes its dropout from it."""
        return (self._generator.initial_seed(), self._generator.get_offset()) if self._generator else (0, 0)

    def _users(self) -> list[int]:
        count = torch._C._storage_Use_Count
        pairs = zip(self._made, self._places, strict=True)
        return [sys.getrefcount(made) + count(place._cdata) for (_, made), place in pairs]

    def _users_if(self, has_them: bool) -> list[int]:
        """The users of each gradient that was made, if the leaves have them, or if not; nobody else does yet."""
        before = [leaf.grad for leaf, _ in self._made]
        _give([leaf for leaf, _ in self._made], [each if has_them else None for _, each in self._made])
        users = self._users()
        _give([leaf for leaf, _ in self._made], before)
        return users

    def _carry(self) -> None:
        """Copy the gradients that the step adds to, before it drops them, to where it finds them."""
        pairs = [(static, leaf.grad) for leaf, static in self._carried if leaf.grad is not None]
        copy_into([static for static, _ in pairs], [gradient for _, gradient in pairs])

    def __call__(self, inputs: list[Tensor]) -> Any:
        optim.refresh(self._optimizers)
        self._carry()
        launch(self._graph, self._cores, inputs)
        for leaf, gradient in self._exits:
            if leaf.grad is not gradient:
                leaf.grad = gradient
        grads = [leaf.grad for leaf in self._kept if leaf.grad is not None]
        torch.autograd.graph.increment_version([*self._written, *grads, *[gradient for _, gradient in self._made]])
        for optimizer in self._stepped:
            for hook in (*hooks._global_optimizer_pre_hooks.values(), *hooks._global_optimizer_post_hooks.values()):
                hook(optimizer, (), {})
        self._drawn = self._randomness()
        outputs: Any = copies(self._outcome.tensors)
        if any(self._recorded):
            outputs = _Spent.apply(_TAPE, outputs, self._recorded)  # type: ignore[no-untyped-call]
        return self._outcome.result(inputs, outputs)


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Have no hook of all optimizers see the steps in here, where it may not wait: the replay that follows calls it."""
    known: list[dict[Any, Any]] = [hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks]
    kept = [dict(each) for each in known]
    for each in known:
        each.clear()
    try:
        yield
    finally:
        for each, before in zip(known, kept, strict=True):
            each.update(before)


def _give(leaves: list[Tensor], gradients: list[Tensor | None]) -> None:
    for leaf, gradient in zip(leaves, gradients, strict=True):
        leaf.grad = gradient


class _Spent(torch.autograd.Function):
    """What stands on the caller's tape for a step whose backward pass is done."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, outputs: list[Tensor], recorded: list[bool]) -> tuple[Tensor, ...]:
        fixed = [output for output, is_recorded in zip(outputs, recorded, strict=True) if not is_recorded]
        ctx.mark_non_differentiable(*fixed)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        raise RuntimeError("perflint: the step that made this was replayed, its backward pass included")
