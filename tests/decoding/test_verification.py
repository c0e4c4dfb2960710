"""Greedy verification against trying all paths, and stops in every place."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from echodraft.decoding.interfaces import Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import merge
from echodraft.decoding.verification import GreedyVerifier
from tests.decoding.test_tree import drafts
from tests.reference.rows import stop_slow
from tests.reference.trees import accept_slow

WIDTH = 4  # tokens of the drafts


def sequence_of(decided: list[int], end: set[int], limit: int) -> Sequence:
    sequence = Sequence([0, 1], StopRule(frozenset(end), limit))
    sequence.commit(Verification((), tuple(decided)))
    return sequence


@given(drafts(), st.data(), st.sets(st.integers(0, 3), max_size=2), st.integers(2, 8))
def test_accept_is_the_longest_agreeing_path_cut_by_the_stops(paths, data, end, limit):
    tree = merge(9, paths, max_depth=limit - 2)
    choices = [data.draw(st.integers(0, WIDTH - 1)) for _ in range(len(tree))]
    logits = torch.nn.functional.one_hot(torch.tensor(choices), WIDTH).float()
    result = GreedyVerifier().accept(tree, Rows(logits), sequence_of([9], end, limit))

    path = accept_slow(tree, choices)
    decided = [*tree.tokens[path[1:]].tolist(), choices[path[-1]]]
    tokens, reason = stop_slow(decided, end, limit - 1)
    assert list(result.tokens) == tokens
    assert result.finish_reason == reason
    assert list(result.nodes) == path[: len(tokens) + 1]


def test_the_first_token_may_end_the_output():
    rows = Rows(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    first = GreedyVerifier().first(rows, Sequence([0], StopRule(frozenset({0}), 5)))
    assert first == Verification((), (0,), "stop")
    first = GreedyVerifier().first(rows, Sequence([0], StopRule(frozenset(), 1)))
    assert first == Verification((), (0,), "length")


def test_a_tie_goes_to_the_lowest_id():
    rows = Rows(torch.tensor([[1.0, 3.0, 3.0, 3.0]]))
    assert rows.argmax(0) == 1


def test_an_end_token_on_a_rejected_branch_has_no_effect():
    """Fault report 3 (TensorRT-LLM#1449)."""
    from echodraft.decoding.tree import Path

    tree = merge(9, [Path([3], [0.6], "a"), Path([1, 2], [0.3, 0.9], "b")])
    choices = torch.tensor([1, 0, 2, 0])  # root wants 1; the other branch is the end token 3
    logits = torch.nn.functional.one_hot(choices, 4).float()
    result = GreedyVerifier().accept(tree, Rows(logits), sequence_of([9], {3}, 20))
    assert (result.tokens, result.finish_reason) == ((1, 2, 0), None)
