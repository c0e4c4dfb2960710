"""Sequences and stop rules, token by token."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from echodraft.decoding.interfaces import Needs, top_ids
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.stopping import StopRule
from tests.reference.rows import stop_slow, top_ids_slow

TOKENS = st.lists(st.integers(0, 5), max_size=12)


@given(TOKENS, st.sets(st.integers(0, 5), max_size=2), st.integers(1, 9), st.integers(0, 12))
def test_cutting_in_blocks_is_stopping_token_by_token(tokens, end, limit, block):
    """Fault report 20: the limit is no matter of blocks."""
    rule = StopRule(frozenset(end), limit)
    out: list[int] = []
    reason = None
    for start in range(0, len(tokens), block or 1):
        kept, reason = rule.cut(tokens[start : start + (block or 1)], len(out))
        out += kept
        if reason:
            break
    assert (out, reason) == stop_slow(tokens, end, limit)


def test_an_end_token_at_the_limit_is_a_stop():
    assert StopRule(frozenset({7}), 2).after(7, 2) == "stop"


def test_nothing_asked_for_is_finished_at_once():
    assert Sequence([1, 2], StopRule(frozenset(), 0)).finish_reason == "length"


def test_a_sequence_counts_what_was_decided_and_what_was_committed():
    sequence = Sequence([5, 6, 7], StopRule(frozenset(), 6))
    sequence.commit(Verification((), (8,)))
    assert (sequence.committed, sequence.root, sequence.output, sequence.room) == (3, 8, [8], 5)
    sequence.commit(Verification((0, 2), (9, 4)))
    assert (sequence.committed, sequence.root, sequence.output) == (5, 4, [8, 9, 4])
    sequence.commit(Verification((0, 1), (3,), "stop"))
    assert sequence.finish_reason == "stop"
    assert sequence.ids.tolist() == [5, 6, 7, 8, 9, 4, 3]
    assert sequence.output_length == 4


@given(st.integers(1, 700), st.integers(1, 40), st.integers(0, 2**31))
def test_top_ids_are_those_of_a_sort(vocabulary, k, seed):
    logits = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(seed)).float()[None]
    k = min(k, vocabulary)
    assert top_ids(logits, k, block=8)[0].tolist() == top_ids_slow(logits[0].tolist(), k)


def test_top_ids_of_many_equal_logits_are_distinct_and_highest():
    logits = torch.zeros(2, 5000)
    logits[:, 4321] = 1.0
    found = top_ids(logits, 5)
    assert found[:, 0].tolist() == [4321, 4321]
    assert all(len(set(row)) == 5 for row in found.tolist())


def test_needs_join():
    both = Needs(frozenset({1}), 3) | Needs(frozenset({2}), 7)
    assert both == Needs(frozenset({1, 2}), 7)
