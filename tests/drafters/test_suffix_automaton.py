"""The suffix automaton beside a brute-force search, and the drafter on it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.interfaces import Rows
from echodraft.drafters.copying import copy_end
from echodraft.drafters.registry import build
from echodraft.drafters.suffix_automaton import SuffixAutomaton
from tests.drafters.runs import context, run, sequence_of
from tests.reference.copying import longest_earlier_match


@settings(deadline=None, max_examples=200)
@given(
    tokens=st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v), min_size=1, max_size=60)),
    longest=st.integers(1, 8) | st.just(1000),
)
def test_after_every_token_the_match_is_what_a_search_finds(tokens, longest):
    automaton = SuffixAutomaton(longest)
    for count, token in enumerate(tokens, 1):
        automaton.push(token)
        assert (automaton.match, automaton.match_end) == longest_earlier_match(tokens[:count], longest)


def test_states_stay_below_two_a_token():
    automaton = SuffixAutomaton()
    for token in [i * i % 7 for i in range(500)]:
        automaton.push(token)
    assert len(automaton._length) <= 1000


def propose(ids, **options):
    drafter = build("suffix_automaton", context(), options)
    sequence = sequence_of(ids)
    drafter.start(sequence, Rows(torch.empty(0)))
    return [path.tokens for path in drafter.propose(sequence)]


def test_the_most_recent_occurrence_is_copied():
    assert propose([1, 2, 8, 1, 2, 9, 1, 2], max_length=1) == [[9]]


def test_a_longer_match_beats_a_more_recent_one_but_for_the_limit():
    ids = [1, 2, 3, 8, 2, 3, 9, 1, 2, 3]
    assert propose(ids, max_length=1) == [[8]]
    assert propose(ids, max_length=1, longest_match=2) == [[9]]


def test_length_grows_with_the_match():
    ids = [*range(30), 0, 1, 2]
    options = {"base_length": 2, "per_match": 3}
    assert propose(ids, **options) == [list(range(3, 14))]  # 2 + 3 * 3
    assert propose(ids, **options, max_length=5) == [list(range(3, 8))]
    assert propose(ids, min_match=4) == []


def test_a_proven_loop_goes_on_and_an_unproven_one_does_not():
    loop = [5, 6, 7, 5, 6, 7]
    assert propose(loop, max_length=8) == [[5, 6, 7, 5, 6, 7, 5, 6]]
    assert propose(loop, max_length=8, loops=False) == [[5, 6, 7]]
    assert propose([5, 6, 7, 8, 5], max_length=8) == [[6, 7, 8, 5]]


def test_nothing_is_drafted_where_nothing_matches():
    assert propose([1, 2, 3, 4]) == []


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_verbatim_copy_is_accepted_whole_and_not_at_all_if_shifted(shift, monkeypatch):
    text = list(range(100, 160))
    script = text[1:]
    _, statistics, _ = run("suffix_automaton", [*text, 7, 100], script, min_value=0.0)
    assert statistics.steps == 1
    monkeypatch.setattr(
        "echodraft.drafters.suffix_automaton.copy_end",
        lambda ids, start, *rest: copy_end(ids, start + shift, *rest),
    )
    _, statistics, _ = run("suffix_automaton", [*text, 7, 100], script, min_value=0.0)
    assert statistics.accepted_by_source == {}
