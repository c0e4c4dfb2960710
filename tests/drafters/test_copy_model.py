"""The copy model: probabilities of places, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from echodraft.drafters.copy_model import FEATURES, GROUPS, SIZES, CopyModel, Places, load_weights
from echodraft.drafters.pointer import CopyPointer


def places(positions, tokens, matches, similarity=None, length=100):
    matches = np.array(matches, dtype=np.int64)
    similarity = np.array(similarity or [0.0] * len(matches), dtype=np.float32)
    return Places(np.array(positions), np.array(tokens), matches > 0, matches, similarity, length)


def test_guesses_exclude_each_other_and_leave_room_for_none():
    model = CopyModel({"match": [0.0, math.log(3)] + [0.0] * (SIZES["match"] - 2)})
    likely, tokens = model.probabilities(places([5, 9], [7, 8], [1, 2]), CopyPointer(), [])
    assert likely.tolist() == pytest.approx([1 / 5, 3 / 5])  # 1 and 3 beside the 1 of "none of them"
    assert tokens == pytest.approx({7: 1 / 5, 8: 3 / 5})


def test_places_with_one_token_add_up():
    _, tokens = CopyModel({}).probabilities(places([5, 9, 11], [7, 7, 8], [1, 1, 1]), CopyPointer(), [])
    assert tokens == pytest.approx({7: 2 / 4, 8: 1 / 4})


def test_a_likelier_state_is_preferred_and_other_places_have_weights_of_their_own():
    model = CopyModel({"anchored_similarity": [2.0], "other": [-1.0], "other_similarity": [4.0]})
    likely, _ = model.probabilities(
        places([5, 9, 11], [1, 2, 3], [1, 1, 0], [0.5, 0.1, 0.5]), CopyPointer(), []
    )
    scores = np.exp([1.0, 0.2, -1.0 + 2.0])
    assert likely.tolist() == pytest.approx((scores / (1 + scores.sum())).tolist())


def test_recycled_tokens_support_their_place_and_stand_for_themselves():
    weights = {
        "recycled": [1.0, 2.0, *[0.0] * 6],
        "new": [-1.0, -2.0, *[0.0] * 6],
        "new_after": [-0.5, 0, 0, 0],
    }
    _, tokens = CopyModel(weights).probabilities(places([5], [7], [1]), CopyPointer(), [8, 7])
    place, eight, seven = math.exp(2.0), math.exp(-1.5), math.exp(-2.5)
    whole = 1 + place + eight + seven
    assert tokens == pytest.approx({7: (place + seven) / whole, 8: eight / whole})


def test_without_places_only_recycled_tokens_count():
    likely, tokens = CopyModel({"new": [0.0] * 8}).probabilities(places([], [], []), CopyPointer(), [4])
    assert likely.tolist() == []
    assert tokens == {4: 0.5}
    assert CopyModel({}).probabilities(places([], [], []), CopyPointer(), [])[1] == {}


def test_shipped_weights_have_every_group_and_size():
    for weights in load_weights().values():
        assert set(weights) == set(GROUPS)
        assert {name: len(values) for name, values in weights.items()} == SIZES
        assert np.isfinite(CopyModel(weights).weights).all()
        assert CopyModel(weights).weights.shape == (FEATURES,)
    assert set(load_weights()) == {"auto", "srsd"}


def test_longer_matches_and_likeness_weigh_more_as_shipped():
    for weights in load_weights().values():
        assert weights["match"][-1] > weights["match"][0]
        assert weights["other_similarity"][0] > 0
        assert weights["anchored_similarity"][0] > 0
