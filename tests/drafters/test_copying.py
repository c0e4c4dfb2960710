"""What retrieval drafters share: match lengths, rates along a copy, ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.drafters.copying import LONGEST_MATCH, CopyRates, common_suffix, copy_end, cut_at
from tests.reference.copying import common_suffix_slow


@settings(deadline=None, max_examples=200)
@given(
    tokens=st.lists(st.integers(0, 2), min_size=2, max_size=50), cap=st.sampled_from([1, 3, LONGEST_MATCH])
)
def test_common_suffix_is_what_walking_back_gives(tokens, cap):
    last = len(tokens) - 1
    ends = np.arange(last)
    expected = [common_suffix_slow(tokens, end, last, cap) for end in range(last)]
    assert common_suffix(np.array(tokens), ends, last, cap).tolist() == expected


def test_the_rate_of_a_copied_token_is_that_of_the_match_it_extends():
    table = AcceptanceTable({("k", "match", 3): 0.3, ("k", "match", 4): 0.4, ("k", "match", 5): 0.5})
    rates, bins = CopyRates(table, "k").run(3, 3)
    assert rates == [0.3, 0.4, 0.5]
    assert bins == [("k", "match", m) for m in (3, 4, 5)]


def test_rates_of_long_copies_share_the_last_bin():
    rates, bins = CopyRates(AcceptanceTable({("k", "match", LONGEST_MATCH): 0.9}), "k").run(30, 50)
    assert len(rates) == len(bins) == 50
    assert set(bins[2:]) == {("k", "match", LONGEST_MATCH)}
    assert rates[-1] == 0.9


@pytest.mark.parametrize(
    ("start", "length", "match", "expected"),
    [
        (2, 2, 0, [2, 3]),
        (2, 9, 0, [2, 3, 4]),  # to the end of the context and no further
        (3, 5, 1, [3, 4]),  # a match of 1 proves no loop of period 2
        (3, 5, 2, [3, 4, 3, 4, 3]),
        (5, 5, 9, []),  # nothing follows
    ],
)
def test_a_copy_ends_with_the_context_unless_the_text_loops(start, length, match, expected):
    assert copy_end(np.arange(5), start, length, match) == expected


def test_a_run_is_cut_before_the_first_stop():
    assert cut_at([1, 2, 3, 2], frozenset({3})) == [1, 2]
    assert cut_at([1, 2], frozenset({3})) == [1, 2]
