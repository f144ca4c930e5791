"""What shows that a loop carries a state through time, where neither an RNN nor a given sequence is known."""

from __future__ import annotations

import ast
import textwrap

import pytest

from perflint.analysis.program import Program

_START = """
import torch
import torch.nn.functional as F
from torch import nn
from somewhere import Decoder
"""


def _kinds(code: str) -> list[str]:
    """The kind of each loop of the program; empty where it is none over time."""
    program = Program(_START + textwrap.dedent(code))
    loops: list[ast.For | ast.While] = [*program.of_type(ast.For), *program.of_type(ast.While)]
    loops.sort(key=lambda loop: loop.lineno)
    return [found.kind if (found := program.time_loop(loop)) is not None else "" for loop in loops]


def test_hypotheses_that_are_sorted_are_chosen() -> None:
    code = """
    class Search(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 8), nn.Linear(8, 9)

        def forward(self, token: torch.Tensor, longest):
            beam = [((0,), 0.0, None)]
            for _ in range(longest):
                found = []
                for words, score, state in beam:
                    token[0] = words[-1]
                    state = self.cell(token, state)
                    scores = self.head(state).cpu().data.numpy().tolist()
                    for word, more in enumerate(scores):
                        found.append((words + (word,), score + more, state))
                beam = sorted(found, key=lambda each: each[1], reverse=True)[:5]
            return beam[0]
    """
    assert _kinds(code)[0] == "autoregressive"


def test_a_ranking_of_scores_chooses_what_goes_on() -> None:
    code = """
    def search(decoder: Decoder, tokens: torch.Tensor, states, width, longest):
        inputs = [tokens]
        for t in range(longest):
            found = []
            for each, state in zip(inputs, states):
                scores, state = decoder(each, state)
                found.append(scores)
            best = torch.cat(found, dim=1).argsort(dim=1, descending=True)[:, :width]
            inputs = [best[:, i] for i in range(width)]
    """
    assert _kinds(code)[0] == "autoregressive"


_MEMORY = """
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.write = nn.Linear(8, 8)
        self.last = None

    def forward(self, x):
        {body}

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = Memory()

    def forward(self, x: torch.Tensor):
        out = []
        for t in range(x.size(1)):
            out.append(self.memory(x[:, t]))
        return torch.stack(out, dim=1)
"""


def test_a_module_that_reads_its_attribute_before_it_sets_it_keeps_a_state() -> None:
    body = "self.last = torch.tanh(self.write(x) + self.last)\n        return self.last"
    assert _kinds(_MEMORY.format(body=body)) == ["recurrence"]


def test_a_first_value_that_a_test_sets_is_not_what_is_read_later() -> None:
    body = """if x.sum() == 0:
            self.last = torch.zeros_like(x)
        out = self.write(x) + self.last
        self.last = out
        return out"""
    assert _kinds(_MEMORY.format(body=body)) == ["recurrence"]


def test_a_cache_that_is_set_where_it_does_not_fit_is_no_state() -> None:
    body = """if self.last is None or self.last.size(0) != x.size(0):
            self.last = torch.ones_like(x)
        return self.write(x) * self.last"""
    assert _kinds(_MEMORY.format(body=body)) == ["vectorizable"]


_GLIMPSES = """
class Trainer:
    def __init__(self, model: nn.Module):
        self.model = model

    def train(self, x: torch.Tensor, h: torch.Tensor, place: torch.Tensor):
        places = []
        for t in range(self.glimpses):
            h, place, score = self.model(x, place, h)
            places.append(place)
        return torch.stack(places, dim=1)

    def test(self, x: torch.Tensor, h: torch.Tensor, place: torch.Tensor):
        for _ in range(self.glimpses - 1):
            h, place, score = self.model({arguments})
        return self.model(x, place, h, last=True)
"""


def test_a_loop_that_hands_a_model_its_state_as_one_over_time_does_is_one_too() -> None:
    assert _kinds(_GLIMPSES.format(arguments="x, place, h"))[1] == "recurrence"
    assert _kinds(_GLIMPSES.format(arguments="place, h, x"))[1] == "recurrence"
    assert _kinds(_GLIMPSES.format(arguments="h"))[1] == ""


def test_outputs_that_are_read_back_from_their_list_are_the_loops_own() -> None:
    code = """
    def generate(self, model: nn.Module, start: torch.Tensor, n):
        frames = [start]
        for _ in range(n):
            frames.append(model({last}))
        return torch.stack(frames)
    """
    assert _kinds(code.format(last="frames[-1]")) == ["autoregressive"]
    assert _kinds(code.format(last="frames[-1]) + 0.1 * (frames[-1]")) == [""]


def test_a_state_that_a_model_replaces_along_a_whole_axis_is_carried() -> None:
    code = """
    class Facts(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(8, 8)

        def forward(self, facts: torch.Tensor, gates: torch.Tensor, c: torch.Tensor):
            count, length, width = facts.size()
            for i in range(length):
                fact = facts[:, i]
                if i == 0:
                    c = c.unsqueeze(0).expand_as(fact)
                c = self.cell(fact * c){rest}
            return c
    """
    assert _kinds(code.format(rest="")) == ["recurrence"]


@pytest.mark.parametrize("head", ["pyro.markov(range(n))", "progress(range(n))", "np.arange(n)"])
def test_what_a_range_is_handed_to_passes_it_on(head: str) -> None:
    code = f"""
    import numpy as np
    import pyro
    cell = nn.GRUCell(8, 8)
    def run(x: torch.Tensor, h: torch.Tensor, progress, n):
        for t in {head}:
            h = cell(x[t], h)
        return h
    """
    assert _kinds(code) == ["vectorizable"]


@pytest.mark.parametrize(
    "update",
    [
        "h = self.layer(h)",  # rounds of message passing
        "h = h + 0.1 * self.layer(h)",  # a solver
        "h = F.normalize(self.layer(h), dim=0)",  # power iteration
    ],
)
def test_a_model_that_is_applied_again_and_again_is_no_time_axis(update: str) -> None:
    code = f"""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, h: torch.Tensor, n_steps):
            for _ in range(n_steps):
                {update}
            return h
    """
    assert _kinds(code) == [""]


def test_the_number_of_the_step_in_a_name_is_no_data() -> None:
    code = """
    import pyro
    import pyro.distributions as dist
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.move, self.emit = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, mask: torch.Tensor, z: torch.Tensor, longest):
            for t in pyro.markov(range(longest)):
                z = pyro.sample({name}, dist.Normal(self.move(z), 1).mask(mask[:, t]))
                pyro.sample("seen_%d" % t, dist.Bernoulli(self.emit(z)))
    """
    assert _kinds(code.format(name='"z_%d" % t')) == ["recurrence"]
    assert _kinds(code.format(name="t")) == [""]


def test_a_choice_among_own_outputs_that_is_joined_with_a_state_may_stand_for_what_is_given() -> None:
    code = """
    import random
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out, self.embed = nn.GRUCell(16, 8), nn.Linear(8, 9), nn.Embedding(9, 8)

        def forward(self, y: torch.Tensor, h: torch.Tensor, rate):
            outputs = []
            for i in range(y.size(1)):
                context = h.tanh()
                if i > 0 and random.random() < rate:
                    own = self.embed(torch.argmax(self.out(outputs[-1]), dim=1))
                    x = torch.cat((own, context), dim=1)
                else:
                    x = torch.cat((y[:, i], context), dim=1)
                h = self.cell(x, h)
                outputs.append(h)
            return torch.stack(outputs, dim=1)
    """
    assert _kinds(code) == ["mixed"]


def test_windows_that_hand_on_a_state_are_no_steps_of_the_loop_that_generates() -> None:
    code = """
    def run(model: nn.Module, hidden: torch.Tensor, text: torch.Tensor, length):
        batches = [text[start : start + length] for start in range(0, len(text), length)]
        for batch in batches:
            output, hidden = model(batch, hidden)
        word = text[:1]
        for _ in range(length):
            output, hidden = model(word, hidden)
            word = output.argmax(dim=-1)
    """
    assert _kinds(code) == ["", "autoregressive"]


def test_a_sequence_that_was_turned_around_since_is_known_no_more() -> None:
    code = """
    from torch.nn.utils.rnn import pad_packed_sequence
    def last(packed, out: torch.Tensor):
        outputs, lengths = pad_packed_sequence(packed)
        outputs = outputs.transpose(0, 1)
        for i, length in enumerate(lengths):
            out[i] = outputs[i, length - 1] * 2
    """
    assert _kinds(code) == [""]


_FRAMES = """
class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.next = nn.Linear(8, 8), nn.Linear(8, 8)

    def generate(self, frame: torch.Tensor):
        outputs = []
        {head}:
            output = self.net(frame)
            outputs.append(output)
            if output.mean() > 0:
                break
            frame = self.next(output)
        return torch.stack(outputs)
"""


def test_what_goes_back_into_the_model_until_a_test_ends_it_is_generated_rather_than_made_by_layers() -> None:
    assert _kinds(_FRAMES.format(head="while True"))[0] == "autoregressive"
    assert _kinds(_FRAMES.format(head="for _ in range(self.depth)")) == [""]
