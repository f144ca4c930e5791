"""A Python loop over time steps that launches tensor operations at every step.

## What it does
Finds `for` and `while` loops which walk the time axis of a sequence, or generate it token by token, and which launch
torch operations in each step. The kind says, by data flow, what may be done about it:

- *vectorizable*: a step needs nothing of the step before, or only the state that `nn.LSTM`, `nn.GRU`, `nn.RNN` or one
  of their Cells carries through a sequence by itself;
- *autoregressive*: a step consumes the output of the step before;
- *mixed*: whether a step gets the given sequence or the loop's own output is decided at run time (teacher forcing);
- *recurrence*: a given sequence goes in, but the loop-carried state passes through more than such an RNN: attention, a
  custom cell, masks, discounted returns.

In a time loop steps of a tensor, or of a list of tensors, are combined with a loop-carried state, or a model's output
goes back into the model. The state may lie in attributes of a module. Where no module of yours carries it, or nothing
is carried at all, something else must show a time axis: a loop variable called `t`, a bound called a length, a range
over the whole indexed axis, a reversed range, a sequence that was built from its end, or another loop over time that
runs the same model. Loops over layers, batches and samples, loops that train or step an environment, samplers, solvers
of differential equations, refinements of a whole sequence, host arrays and test files are left alone.

## Why it is slow
Each step launches a handful of small kernels: the GPU finishes them faster than Python can launch the next, and idles
in between. A sequence of 128 steps pays for that 128 times, forward and again backward.

## Example
```python
outputs = []
for x_t in x.split(1, dim=1):
    h, c = self.cell(x_t.squeeze(1), (h, c))
    outputs.append(self.head(h))
outputs = torch.stack(outputs, dim=1)
```

## Use instead
```python
hidden, (h, c) = self.lstm(x)
outputs = self.head(hidden)
```
A loop that must stay can be captured as one CUDA graph, which replays all of its launches at once:
```python
from perflint.runtime.graphs import cuda_graph

@torch.no_grad()
@cuda_graph
def greedy(self, token, state, steps): ...
```
A bare `torch.compile` of the step was measured to be slower than the loop.

## Fix safety

*vectorizable* loops become operations on all steps at once where data flow proves that each step gives the same:
`rounding` (the same mathematics, summed in another order), `behaviour` where dropout between the layers of an RNN draws
its numbers in another order, where a list of tensors is stacked first, which fails if they differ in shape, or where a
loss takes what it is given for steps of a tensor, which fails if it is a list. Modules and parameters stay the very
same. Results that may be written to in place are copied out of shared memory. Functions of yours that do to all steps
what they do to one are called with all. It is assumed that the sequence has at least one step and is as long as the
loop goes, that inputs of an RNN with `batch_first` have a batch axis, and that no other file registers hooks, builds a
module's parts otherwise in a subclass, or calls it under autocast on a CPU, where Cells and the RNN compute in other
types. Where a profile has seen the missing rank or class, there is a candidate with a guard (`perflint docs
profiling`).

What is right, but code that few would write by hand, is a candidate that `verify` and `tune` race, `perflint run`
applies in memory, and only `--unsafe` or `--verified` writes: Cells as one call of the function that `nn.LSTM`,
`nn.GRU` and `nn.RNN` call, with the Cell's weights; losses taken step by step with `torch.vmap`, so that each step
keeps what it ignores or averages over, functions that choose by a setting how to compute, and arithmetic on steps of
an unknown number of axes; bodies of functions that can't be called with all steps; copies in a certain layout. By
hand, put an `nn.LSTM` in the Cell's place, and give the loss all steps at once if it ignores none.

A first step that alone does something else is taken in front of the others. A test whose answer is the same in every
step is asked before the loop, even if no step is taken. One that is drawn anew in each step (`random.random() < ratio`)
stays: only you may decide to draw it once for a whole sequence. For a graph, what the steps draw on the host is drawn
in front of the loop, in the same order, where no step may end it; each step then picks by that from the given step and
its own output, which must have one shape.

*mixed* loops and recurrences are tried at once first; where both ways are open, `perflint verify` races them. They, the
other kinds, and *vectorizable* loops of which something can't be proved, are captured as CUDA graphs by
`perflint.runtime.graphs`: `exact` where no gradients are recorded, else `rounding`, and a candidate that waits for
`--unsafe`, because the program then depends on perflint-torch. A function that only computes on the device is decorated
with `cuda_graph`, below its other decorators. Else the loop, with the code around it that computes, or makes what it
fills, becomes a function, under `graphed_step` where no gradients are recorded, if nobody else changes its names or
views of its memory. In the way stand what is read back, printed, kept, drawn or made on the host, also in functions
that are called, of other files where it can be seen what builds their modules; other modules that a caller hands over;
calls that differ each time; and decorators that nobody knows or that do more than call the function.

Under `torch.no_grad()`, a loop that ends by a test of what it made becomes a call of `graphed_loop`, which reads the
test once in several steps, and drops what was computed past the end; `last_state=False` says that the loop-carried
state is dead after the loop. The loop counts by `range`, tests at the end of a step, writes in place only to what the
step made, and stacks its results' lists. It is assumed that no other file compiles the function (by torch.jit none
that the run doesn't see) or takes second derivatives of it, and that steps past the end can't fail on the device, as a
draw from no chances does, or an index past the end of a table. Where shapes or numbers differ at each call, or
something does need the host, the function stays eager, and a warning says why. A parameter that is used elsewhere, too,
or in several calls before one `backward`, has its gradients added up in another order. A loop that is captured already
isn't reported.

## Measured
One H200, torch 2.11.0, 2026-11-21. By `perflint fix` (medians of 21 interleaved pairs; `tests/gpu/measure.py`): a
training step of an LSTM decoder under teacher forcing (batch 100, 128 steps, width 512, 1,000 words), 101.6 ms to
10.3 ms (10.1x; an expert's version 10.0 ms); by `--unsafe`, forward and backward of an LSTMCell of that size, 35.7 ms
to 9.0 ms (4.0x; by hand, as `nn.LSTM`, 8.5 ms). On hosts that run Python faster: 8.2x and 2.5x. cuDNN warns that a
Cell's weights are not one chunk of memory, and copies them at each call.

As CUDA graphs, by `perflint fix --unsafe` (15 interleaved rounds; `tests/gpu/measure_graphs.py`): a greedy LSTM
decode of 128 steps, 20.2 ms to 2.3 ms at batch 1 (8.9x) and 20.5 ms to 4.8 ms at batch 100 (4.3x); an attention
decoder's forward and backward over 60 steps, 76.6 ms to 15.4 ms (5.0x; 2.9x on a faster host). In another run of that
day (`--compilers`): `torch.jit.script` of the greedy decode 1.4x, `torch.compile` of its step 0.74x; `torch.compile` of
the attention decoder 1.4x, after 55 s of compiling, where `perflint fix --unsafe` gained 3.2x after 0.4 s.
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint import api
from perflint.api import Finding, Options, Program, Rule


class DecodeLoop(Rule):
    group = "overhead"
    triggers = ("for ", "while ")

    def check(self, program: Program, options: Options) -> Iterator[Finding]:
        for loop in program.plain_loops():
            best = api.time_loop_remedy(program, loop)
            if best is None:
                continue
            yield self.finding(
                api.head_span(program, loop),
                f"each time step launches its own kernels: {best.because} ({best.kind})",
                kind=best.kind,
                fixes=best.fixes,
                blocked=best.blocked,
            )
