"""Shows what graphed steps compute: each is taken eagerly, to be recorded, and then again by its graph."""

from __future__ import annotations

import functools
from typing import Any

from perflint.shim.hooks import replace
from perflint.verify.agent.recorder import Recorder
from perflint.verify.agent.state import tensors_in
from perflint.verify.agent.steps import Steps


def take_twice(steps: Steps, recorder: Recorder, module: Any) -> None:
    """Have graphed steps run eagerly first, for what is recorded in their middle, and go on with what a replay makes.

    A replay that computes something else shows in the step that follows. `module` is that of `graphed_step`.
    """
    kind = module.GraphedStep
    take = kind._replay

    @functools.wraps(take)
    def taken(step: Any, capture: Any, call: Any, scene: Any) -> Any:
        before, restarts = _Before(scene), recorder.restarts
        result = step.eagerly(call, scene)
        if recorder.restarts != restarts:  # the state is another run's now
            return result
        before.restore()
        with steps.noting():
            return take(step, capture, call, scene)

    kind._replay = taken
    replace(module.Recall, "find", lambda *_: None)  # the shorter way, which has no scene


class _Before:
    """What a step may change: tensors, gradients, and the random numbers of its device."""

    def __init__(self, scene: Any) -> None:
        import torch

        states = (tensor for each in scene.optimizers for _, tensor in tensors_in(list(each.state.values())))
        self._gradients = [(leaf, leaf.grad) for leaf in scene.leaves]
        grads = (gradient for _, gradient in self._gradients if gradient is not None)
        # kernels of batch norm write to its averages without telling of it
        changed = {id(each): each for each in (*scene.walk.state, *scene.leaves, *states, *grads)}
        self._values = [(each, each.detach().clone()) for each in changed.values()]
        (device,) = scene.walk.devices
        self._generator = torch.cuda.default_generators[device]
        self._offset = self._generator.get_offset()

    def restore(self) -> None:
        for leaf, gradient in self._gradients:
            leaf.grad = gradient
        for tensor, value in self._values:
            tensor.data.copy_(value)  # unseen by a graph that has saved it
        self._generator.set_offset(self._offset)
