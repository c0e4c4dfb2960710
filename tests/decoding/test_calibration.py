"""Calibration: counts per bin, shadow scoring of what was not verified."""

from __future__ import annotations

import pytest

from echodraft.decoding.calibration import PENDING, PRIOR_TRIALS, UNKNOWN, AcceptanceTable
from echodraft.decoding.tree import Path

BIN = ("copy", 3)
OTHER = ("copy", 4)


def after(rate: float, right: int, trials: int) -> float:
    """A rate after observations, the prior counting as PRIOR_TRIALS of them."""
    return (rate * PRIOR_TRIALS + right) / (PRIOR_TRIALS + trials)


def test_a_bin_starts_from_its_prior_and_from_a_guess_without_one():
    table = AcceptanceTable({BIN: 0.8})
    assert table.rate(BIN) == 0.8
    assert table.rate(("never", "seen")) == UNKNOWN


def test_a_prior_weighs_as_much_as_its_trials():
    table = AcceptanceTable({BIN: 0.8})
    table.observe([Path([1], [0.8], "a", bins=[BIN])], [2])
    assert table.rate(BIN) == pytest.approx(after(0.8, 0, 1))


def test_a_token_counts_only_if_those_before_it_were_right():
    table = AcceptanceTable({BIN: 0.5, OTHER: 0.5})
    table.observe([Path([1, 2], [0.5, 0.5], "a", bins=[BIN, OTHER])], [7, 2])
    assert table.rate(BIN) == pytest.approx(after(0.5, 0, 1))
    assert table.rate(OTHER) == 0.5


def test_proposals_that_were_not_verified_are_scored_in_shadow():
    """B = 0: one token comes out per step, and a path of three is scored over three steps."""
    table = AcceptanceTable({BIN: 0.5, OTHER: 0.5})
    table.observe([Path([1, 2, 3], [0.5] * 3, "a", bins=[BIN, BIN, OTHER])], [1])
    assert table.rate(BIN) == pytest.approx(after(0.5, 1, 1))
    table.observe([], [2])
    assert table.rate(BIN) == pytest.approx(after(0.5, 2, 2))
    table.observe([], [9])
    assert table.rate(OTHER) == pytest.approx(after(0.5, 0, 1))
    table.observe([], [3])
    assert table.rate(OTHER) == pytest.approx(after(0.5, 0, 1)), "a path that was wrong is forgotten"


def test_a_step_of_several_tokens_scores_a_path_from_where_it_stood():
    table = AcceptanceTable({BIN: 0.5})
    path = Path([1, 2, 3, 4], [0.5] * 4, "a", bins=[None, None, None, BIN])
    table.observe([path], [1, 2])
    table.observe([], [3, 4, 5])
    assert table.rate(BIN) == pytest.approx(after(0.5, 1, 1))


def test_tokens_without_a_bin_are_followed_and_not_counted():
    table = AcceptanceTable()
    table.observe([Path([1, 2], [0.5, 0.5], "a")], [1, 2])
    table.observe([Path([1, 2], [0.5, 0.5], "a", bins=[None, BIN])], [1, 9])
    assert table.rate(BIN) == pytest.approx(after(UNKNOWN, 0, 1))


def test_undecided_paths_are_remembered_up_to_a_limit_newest_first():
    table = AcceptanceTable({BIN: 0.5, OTHER: 0.5})
    old = Path([1, 2], [0.5, 0.5], "a", bins=[None, OTHER])
    new = Path([1, 2], [0.5, 0.5], "a", bins=[None, BIN])
    table.observe([old, *[new] * PENDING], [1])
    table.observe([], [2])
    assert table.rate(OTHER) == 0.5
    assert table.rate(BIN) == pytest.approx(after(0.5, PENDING, PENDING))


def test_two_tables_share_nothing():
    one, two = AcceptanceTable({BIN: 0.5}), AcceptanceTable({BIN: 0.5})
    one.observe([Path([1], [0.5], "a", bins=[BIN])], [1])
    assert two.rate(BIN) == 0.5
