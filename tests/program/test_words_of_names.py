"""Names are split into words before they suggest an axis."""

from __future__ import annotations

import pytest

from perflint.analysis.loops.evidence import OTHER_AXES, TIME, any_of


@pytest.mark.parametrize("name", ["max_len", "seqLen", "maxlen", "MAX_LENGTH", "num_sequences2", "num_of_timesteps"])
def test_a_name_suggests_time_however_its_words_are_joined(name: str) -> None:
    assert any_of([name], TIME)


@pytest.mark.parametrize("name", ["nlayers", "numLayers", "batchsize", "batch_idx", "n_batches", "max_iters"])
def test_a_name_suggests_another_axis_in_the_singular_and_the_plural(name: str) -> None:
    assert any_of([name], OTHER_AXES)


@pytest.mark.parametrize("name", ["n_obs", "latest", "iterator", "player", "batched_by"])
def test_a_word_inside_of_another_suggests_nothing(name: str) -> None:
    assert not any_of([name], OTHER_AXES)
