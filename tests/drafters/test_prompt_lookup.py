"""Prompt lookup as transformers has it."""

from __future__ import annotations

import pytest

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import TargetInfo
from echodraft.drafters.base import DraftContext
from echodraft.drafters.registry import build
from tests.drafters.runs import sequence_of

INFO = TargetInfo("made", 1000, 8, 4, 1000, frozenset({99}), "made")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 3, 8, 1, 2, 3], [8, 1, 2, 3]),
        ([1, 2, 8, 3, 2, 9, 1, 2], [8, 3, 2, 9]),  # the longer n-gram before the more recent one
        ([1, 8, 1, 9, 1], [8, 1, 9, 1]),  # the earliest occurrence
        ([1, 2, 3], []),
        ([7, 4, 99, 5, 7], [4]),  # cut before an end token
        ([7, 99, 5, 7], []),
        ([5, 5, 5], [5]),
    ],
)
def test_the_earliest_occurrence_of_the_longest_n_gram_is_copied(ids, expected):
    drafter = build("prompt_lookup", DraftContext(INFO, AcceptanceTable()), {"num_tokens": 4})
    paths = drafter.propose(sequence_of(ids))
    tokens = [path.tokens for path in paths]
    assert tokens == ([expected] if expected else [])
