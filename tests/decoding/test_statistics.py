"""Statistics: what they count and how they are reported."""

from __future__ import annotations

import json

import pytest

from echodraft.decoding.sequence import Verification
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.tree import DraftTree, Path, merge


def test_mat_is_the_sum_over_steps_not_a_mean_of_ratios():
    """Fault report 75 (Relax#345): steps of 1 and of 3 tokens give 4 / 2."""
    statistics = Statistics()
    statistics.count(DraftTree.root_only(1), Verification((0,), (5,)))
    statistics.count(merge(5, [Path([6, 7], [0.5, 0.5], "a")]), Verification((0, 1, 2), (6, 7, 8)))
    assert statistics.mat == 2.0
    assert statistics.as_dict()["acceptance_by_depth"] == [1.0, 1.0]
    assert statistics.as_dict()["mean_budget"] == 1.0
    assert statistics.as_dict()["coverage"] == 0.5


def test_nothing_done_divides_nothing_by_zero():
    """Fault report 57: no steps, no division."""
    assert json.loads(json.dumps(Statistics().as_dict()))["mat"] == 0.0


def test_acceptance_by_depth_counts_steps_that_reached_the_depth():
    statistics = Statistics()
    tree = merge(5, [Path([6, 7], [0.5, 0.5], "a"), Path([9], [0.2], "b")])
    statistics.count(tree, Verification((0, 1), (6, 1)))
    statistics.count(tree, Verification((0,), (1,)))
    assert statistics.as_dict()["acceptance_by_depth"] == [0.5, 0.0]
    assert statistics.drafted_by_source == {"a": 4, "b": 2}
    assert statistics.accepted_by_source == {"a": 1}


def test_time_is_counted_when_the_block_raises():
    statistics = Statistics()
    with pytest.raises(ZeroDivisionError), statistics.timed("draft"):
        raise ZeroDivisionError
    assert statistics.seconds["draft"] > 0
