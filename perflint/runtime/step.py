"""`graphed_step`: replays a whole step of training, backward pass and optimizers included, as one CUDA graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any, Literal, ParamSpec, TypeVar

import torch

from perflint.runtime import optimizers as optim
from perflint.runtime.ranks import Ranks, Vote, avoid_handshakes, several
from perflint.runtime.records import (
    CannotCapture,
    Facts,
    Graphed,
    Record,
    Records,
    Unsettled,
    can_capture,
    current_stream,
    explain,
    inside,
    may_capture,
    name_of,
)
from perflint.runtime.replay import Call, flatten, side_stream
from perflint.runtime.scene import Gradient, Pattern, Recall, Scene, Showed, aside, watch
from perflint.runtime.scope import plain_function
from perflint.runtime.step_replay import Pool, StepReplay
from perflint.runtime.walk import Arguments, Walk

P = ParamSpec("P")
R = TypeVar("R")
_PATTERNS = 4  # of which gradients a step replaces
_SET_UPS = 16  # eager calls that may create optimizers' states
_ELSEWHERE = "another process can't capture or replay it"
_HELD = "stays eager while gradients of an earlier step are held"
_RESEEDED = "the random numbers are seeded again, for which cuDNN makes the dropout inside an RNN another state"


def graphed_step(function: Callable[P, R]) -> GraphedStep[P, R]:
    """Decorate a function of one training step so that it runs as one CUDA graph, with the results of eager mode.

    The first calls are eager, one is captured, later ones are replayed without running Python code: `perflint docs
    tuning` shows one, and says what a graph belongs to, and what stays eager, with one RuntimeWarning that says why. So
    is a step while the user's code holds gradients of an earlier one. Results are copies; a backward pass through one
    raises. One may be an argument of the next call where the step detaches it before it computes gradients. Without
    torch.cuda the function is called unchanged.

    Raises TypeError for generator functions, coroutines and what can't be called.
    """
    return GraphedStep(function)


class _Known:
    def __init__(self, function: Callable[..., Any], code: object) -> None:
        self.records, self.code = Records(name_of(function)), code
        self.patterns: list[Pattern] = []
        self.pools = defaultdict[Hashable, Pool](Pool)  # by streams, on which graphs follow each other, and leaves
        self.set_ups = 0
        self.ranks: Ranks | Literal[False] | None = None  # None: no call has shown whether several take it
        self._told: set[str] = set()

    def clear(self) -> None:
        self.patterns.clear()
        self.pools.clear()
        self._told.clear()
        self.set_ups = 0

    def end(self) -> None:
        self.records.clear()
        self.clear()
        self.ranks = None

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.records.warn(text)


@dataclass(frozen=True)
class _Choice:
    vote: Vote
    reason: str = ""
    record: Record | None = None
    pattern: Pattern | None = None


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
        avoid_handshakes()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self.__wrapped__
        if several() and may_capture() and (ranks := self._ranks(args, kwargs)):
            if ranks.are_apart:
                return function(*args, **kwargs)
            return self._together(Call(function, *flatten((args, kwargs))), ranks)  # type: ignore[no-any-return]
        if not can_capture() or torch.is_anomaly_enabled() or torch.is_grad_enabled() in self._records.refused:
            return function(*args, **kwargs)
        structure, leaves = flatten((args, kwargs))
        with self._records.lock:
            arguments = Arguments(structure, leaves)
            if capture := self._recalled(arguments):
                self._records.replayed()
                return capture(arguments.inputs)  # type: ignore[no-any-return]
        return self._anew(Call(function, structure, leaves))  # type: ignore[no-any-return]

    def clear(self) -> None:
        super().clear()
        self._known.clear()
        self._recall.forget()

    def _scene(self, call: Call) -> Scene:
        walk = Walk(self._records.scope_of(call.function), call.function, call.structure, call.leaves)
        return Scene(walk, together=bool(self._known.ranks))

    def _recalled(self, arguments: Arguments) -> StepReplay | None:
        key = self._recall.find(self.__wrapped__, arguments)
        record = self._records.find(key) if key is not None else None
        capture: StepReplay | None = record.capture if record is not None else None
        return None if capture is None or capture.is_held() or capture.is_reseeded() else capture

    def _replay(self, capture: StepReplay, call: Call, scene: Scene) -> Any:
        """Take a step by its graph; the verifier wraps this."""
        return capture(scene.walk.inputs)

    def eagerly(self, call: Call, scene: Scene) -> Any:
        with optim.capturable(scene.optimizers), aside(scene.walk), inside():
            return call.run({})

    def _anew(self, call: Call) -> Any:
        scene = self._scene(call)
        if not scene.walk.devices:
            return call.run({})
        with self._records.lock:
            choice = self._choice(scene)
            return self._take(choice.vote, choice, call, scene)

    def _ranks(self, args: Any, kwargs: Any) -> Ranks | None:
        known = self._known
        if known.ranks is None:
            modules = self._scene(Call(self.__wrapped__, *flatten((args, kwargs)))).exchanging
            known.ranks = Ranks(modules, known.end) if modules else False
        return known.ranks or None

    def _together(self, call: Call, ranks: Ranks) -> Any:
        with self._records.lock:
            arguments, is_plain = (
                Arguments(call.structure, call.leaves),
                not can_capture() or torch.is_anomaly_enabled(),
            )
            capture = None if is_plain else self._recalled(arguments)
            scene = None if capture else self._scene(call)
            choice = self._choice(scene) if scene else _Choice(Vote.REPLAYED)
            waits = choice.vote is not Vote.REFUSED and (is_plain or not ranks.is_warm)
            agreed = ranks.agree(Vote.EAGER if waits else choice.vote)
            if capture is not None and agreed is Vote.REPLAYED:
                self._records.replayed()
                return capture(arguments.inputs)
            if scene is None:
                scene = self._scene(call)
                choice = self._choice(scene)
            if agreed is Vote.REFUSED:
                ranks.is_refused = True
            else:
                ranks.prepare(scene.exchanging, side_stream(torch.device("cuda", torch.cuda.current_device())))
            return call.run({}) if is_plain else self._take(agreed, choice, call, scene)

    def _choice(self, scene: Scene) -> _Choice:
        mode = torch.is_grad_enabled()
        if reason := self._records.refused.get(mode) or scene.refusal:
            return _Choice(Vote.REFUSED, reason)
        gradients = scene.gradients()
        for pattern in self._known.patterns:
            record = self._records.find(scene.key(pattern, gradients))
            if record is None:
                continue
            if record.capture is None:
                return _Choice(Vote.CAPTURED, "", record, pattern)
            if record.capture.is_reseeded():
                return _Choice(Vote.REFUSED, _RESEEDED)
            if record.capture.is_held():
                return _Choice(Vote.EAGER, _HELD)
            return _Choice(Vote.REPLAYED, "", record, pattern)
        return _Choice(Vote.WATCHED)

    def _take(self, vote: Vote, choice: _Choice, call: Call, scene: Scene) -> Any:
        record, pattern = choice.record, choice.pattern
        if vote is Vote.EAGER and choice.vote is vote and choice.reason:
            self._known.tell(choice.reason)
        if vote is Vote.REFUSED:
            return self._refuse(choice.reason or _ELSEWHERE, scene, call)
        if vote is Vote.EAGER:
            return self.eagerly(call, scene)
        if vote is Vote.WATCHED or record is None or pattern is None:
            return self._eager(call, scene)
        if vote is Vote.CAPTURED and (reason := self._captured(record, call, scene)):
            return self._refuse(reason, scene, call)
        self._recall.note(call.function, scene, record.key, pattern)
        self._records.replayed()
        return self._replay(record.capture, call, scene)

    def _captured(self, record: Record, call: Call, scene: Scene) -> str | None:
        reason, ranks = self._capture(record, call, scene), self._known.ranks
        if ranks and ranks.agree(Vote.REFUSED if reason else Vote.CAPTURED) is Vote.REFUSED:
            record.capture, reason = None, reason or _ELSEWHERE
            ranks.restore()
        return reason

    def _refuse(self, reason: str, scene: Scene, call: Call) -> Any:
        self._records.refuse(torch.is_grad_enabled(), reason)
        optim.restore(scene.optimizers)
        return call.run({})

    def _eager(self, call: Call, scene: Scene) -> Any:
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
        stream = current_stream()
        try:
            with inside():
                pool = self._known.pools[stream, record.notes.renewed]
                capture = StepReplay(call, scene, record.notes, pool)
            return self._records.keep(record, capture)
        except Exception as error:
            return explain(error)
