"""A training step that launches its kernels one by one, where one CUDA graph can launch all of them at once.

## What it does
Finds training steps in hot loops, at their backward pass, and the *region* of each that can be one CUDA graph: from
the first operation on a batch that lies on the device up to the step of the optimizer, or a loop that updates the
parameters by hand, and what else computes on the device behind that. Zeroing of gradients, the forward pass, the loss,
clipping, several optimizers, and averages of weights may be part of it.

And finds, in files that train, where a policy is asked under `torch.no_grad()` what to give to `env.step()`: that, too,
can be a graph.

## Why it is slow
Small models on a fast GPU are launch-bound: each kernel runs for a few microseconds, and Python takes longer to launch
the next one. A graph launches the whole step, backward pass and optimizer included, in one call. Where the GPU is busy
all the time, as with large batches, it gains nothing: `perflint profile` tells which it is.

## Example
```python
for images, labels in loader:
    images, labels = images.to(device), labels.to(device)
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
```

## Use instead
```python
from perflint.runtime.graphs import graphed_step

@graphed_step
def step(images, labels):
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss

for images, labels in loader:
    images, labels = images.to(device), labels.to(device)
    loss = step(images, labels)
    total += loss.item()
```

## Fix safety
A candidate that waits for `--unsafe`, because the program then depends on perflint-torch: `exact` with SGD, `rounding`
with other optimizers, which step in their capturable form, and `precision` where numbers that are annealed are given as
tensors, of torch's default type. The first steps run eagerly and are watched; where a replay would do something else
than the function, all steps stay eager, and a warning says why (`perflint docs tuning`).

Of a policy that acts, `exact`, the statements become a function that computes what the environment is given; data of
the host is copied in front of it, as `torch.Tensor(obs).to(device)`, and noise by `torch.normal`, which reads on the
host whether its deviations are valid, is added behind it. Where gradients are recorded, `dead-graph` comes first.
Policies that assign attributes, test tensors, or give views of what is written to afterwards are left alone.

A step that is a function or a method without a decorator becomes another one in front of it, which it calls. What the
step sets and is read later is returned. What the host reads in its middle, as by `total += loss.item()`, is returned
and read behind it, as are reports every hundred steps, and what is added up or kept in a list or a meter on the device;
batches are copied in front of it, and chosen there but where whole numbers on the device choose rows. A report stays
where it is if it raises for some numbers, as `math.exp(loss.item())` does, and the error is handled. A number that only
the next step reads, such as `log_alpha.exp().item()`, stays on the device; an annealed one that only scales tensors is
given as a tensor. A state that each step hands to the next one, which detaches it, is an argument and a result. Whether
a distribution's arguments are valid is checked on the device: NaN raises the ValueError a step or two later, and behind
the last step as the program ends.

Where the optimizer can't step in a graph, or something that can't be moved stands between the backward pass and its
step, the forward and backward passes are one, `exact` with any optimizer, and the rest stays as it was: with a
GradScaler, LBFGS called without a closure, an optimizer that the file defines, a count that says when a step is due, a
print, a list that is filled, a number that is read. A step that calls a closure isn't captured. With DataParallel over
several devices the step stays eager. With DistributedDataParallel all processes capture and replay it, or none does.

Not captured, with the line and what to do: other numbers of the host that differ in each iteration; tests of tensors;
prints, logs and lists that can't go behind the step; random numbers of the host that are drawn behind a forward pass;
variables that are read where the step fails, or by `locals()`, `eval` or `exec`; attributes that are assigned; losses
that callers compute; sparse gradients, hooks; other exchanges between processes; compiled modules; functions of other
files, unless torch's or known to only compute. What modules and criteria of other files assign, draw or read on the
host shows when the step is watched; what they print is printed by eager steps only.

## Measured
One H100, torch 2.11.0, 2026-11-23. By `perflint tune`, which tries this fix and adds workers, on whole programs with
their loaders: pytorch/examples' vae 6.50x (4.09 to 10.3), mnist 6.42x (5.50 to 7.49), PyTorch-GAN's dcgan 3.94x (2.38
to 6.52). The steps alone, on one H200 (2026-11-30, `python -m tests.gpu.measure_tune`), beside an expert's graph: an
update of PPO 5.12 to 0.41 ms (12.6x; by hand 16.0x), vae 2.54 to 0.30 ms (8.5x; 8.6x, both with a fused optimizer),
mnist 2.80 to 0.56 ms (5.0x; 5.1x), dcgan 11.5 to 2.90 ms (4.0x; 4.3x), a language model 5.50 to 2.24 ms (2.5x; 2.5x).
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule, Severity


class LaunchBoundStep(Rule):
    group = "overhead"
    severity = Severity.ADVICE
    needs_gpu = True
    triggers = ("backward(",)
    regimes = ("overhead", "host reads")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        if program.is_test or program.is_host_only or not program.may_use_device:
            return
        for step in api.training_steps(program):
            yield self.finding(
                api.call_span(program, step.backward),
                "each step launches its kernels one by one: one CUDA graph launches all of them at once",
                kind="graph",
                fixes=step.fixes,
                blocked=step.blocked,
            )
        for call, fix in api.acting_steps(program):
            yield self.finding(
                api.call_span(program, call),
                "each step of the environment launches the policy's kernels one by one: one CUDA graph launches all",
                kind="acting",
                fixes=(fix,),
            )
