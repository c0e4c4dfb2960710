"""The state index beside a slow twin, through growth and refreshed statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from echodraft.drafters.state_index import CHUNK, CLIP, SETTLED, SINKS, StateIndex
from tests.reference.copying import similarities_slow


def rows(count, seed=0, width=8):
    made = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32) * 3 + 10
    made[0] *= 1e4  # an attention sink
    return torch.from_numpy(made)


@pytest.mark.parametrize("pieces", [[30], [30, 1, 1, 3], [10, 9, 2, 1], [5, 6, 25]])
def test_similarities_are_what_the_slow_twin_says_after_every_piece(pieces):
    states = rows(sum(pieces))
    index, size, fitted = StateIndex(), 0, 0
    for piece in pieces:
        index.append(states[size : size + piece])
        size += piece
        fitted = size if size >= 2 * fitted else fitted  # statistics are refreshed when the rows double
        expected = similarities_slow(states[:size].tolist(), fitted, SINKS, CLIP)
        assert len(index) == size
        assert index.similarity().tolist() == pytest.approx(expected, abs=1e-4)


def test_growth_beyond_the_first_memory_keeps_every_row():
    states = rows(CHUNK * 4, seed=1)
    grown, whole = StateIndex(), StateIndex()
    for start in range(0, len(states), 7):
        grown.append(states[start : start + 7])
    whole.append(states)
    fitted = grown._fitted
    assert fitted >= SETTLED
    reference = similarities_slow(states.tolist(), fitted, SINKS, CLIP)
    assert grown.similarity().tolist() == pytest.approx(reference, abs=1e-4)
    assert grown._raw is None  # raw rows are kept only until the statistics have settled


def test_sinks_and_the_last_row_itself_never_match():
    index = StateIndex()
    index.append(rows(40).repeat(2, 1))
    similarity = index.similarity()
    assert (similarity[:SINKS] == -1).all()
    assert similarity[-1] == -1
    assert similarity.argmax() == 39  # the same row, one repetition earlier


def test_rows_are_copied_not_kept():
    states, index = rows(20), StateIndex()
    index.append(states)
    before = index.similarity().copy()
    states.zero_()
    index.append(rows(1, seed=2))
    assert index.similarity()[:19] != pytest.approx(before[:19])  # another query
    assert torch.isfinite(index._keys[:21]).all()
    assert index._keys[10].norm() == pytest.approx(1.0, abs=1e-5)


def test_half_precision_states_are_taken():
    index = StateIndex()
    index.append(rows(20).to(torch.bfloat16))
    assert index.similarity().dtype == np.float32
