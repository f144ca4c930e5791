"""Names are split into words before they tell an axis."""

from __future__ import annotations

import pytest

from perflint.analysis.loops.timeloops.words import COUNTED, ROUNDS, TIME, any_of


@pytest.mark.parametrize("name", ["max_len", "n_steps", "nsteps", "seqLen", "maxlen", "MAX_LENGTH", "num_frames2"])
def test_a_name_tells_time_however_its_words_are_joined(name: str) -> None:
    assert any_of([name], TIME)


@pytest.mark.parametrize("name", ["nlayers", "numLayers", "batchsize", "batch_idx", "n_heads", "classes", "num_boxes"])
def test_a_name_tells_another_axis_in_the_singular_and_the_plural(name: str) -> None:
    assert any_of([name], COUNTED)


@pytest.mark.parametrize("name", ["n_obs", "latest", "constraints", "ahead", "metadata_len", "dimmer", "loopback"])
def test_a_word_inside_of_another_tells_nothing(name: str) -> None:
    assert not any_of([name], COUNTED | ROUNDS)


@pytest.mark.parametrize("name", ["max_iters", "n_layers", "looped_steps", "numEpochs"])
def test_a_name_tells_rounds(name: str) -> None:
    assert any_of([name], ROUNDS)
