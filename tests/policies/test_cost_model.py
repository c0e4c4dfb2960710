"""The cost model against brute force over all budgets, on curves that are not monotonic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import DraftTree, Path, best, merge
from echodraft.errors import InvalidRequest
from echodraft.policies.cost_model import (
    IDLE_STEPS,
    MEMORY,
    PROBE_EVERY,
    TRUST,
    CostModel,
    FixedBudget,
    LatencyCurve,
)
from tests.decoding.test_tree import drafts

NONE_DRAFTED = DraftTree.root_only(9)


def running(committed: int = 100, room: int = 50) -> Sequence:
    sequence = Sequence([0] * committed, StopRule(frozenset(), room + 1))
    sequence.commit(Verification((), (9,)))
    return sequence


def model(curve: LatencyCurve, limit: int = 64, drafting_seconds: float = 0.0) -> CostModel:
    """A cost model whose clock gains `drafting_seconds` between the gate and the choice."""
    ticks = iter(np.arange(10**6) * drafting_seconds)
    return CostModel(curve, AcceptanceTable(), limit, clock=lambda: float(next(ticks)))


@settings(deadline=None, derandomize=True)
@given(
    drafts(),
    st.lists(st.floats(0.01, 10.0), min_size=6, max_size=6),
    st.integers(0, 64),
    st.sampled_from([0.0, 0.5]),
)
def test_the_budget_is_the_best_of_all(paths, seconds, limit, drafting):
    curve = LatencyCurve((1, 2, 3, 4, 8, 16), tuple(seconds))
    tree = merge(9, paths)
    budget = model(curve, limit, drafting)
    sequence = running()
    budget.wants_drafts(sequence)
    chosen = budget.select(tree, sequence)

    def speed(nodes: int) -> float:
        rows = len(best(tree, nodes))
        time = float(curve.at(sequence.committed, rows)[rows - 1]) + drafting
        return float(best(tree, nodes).values.sum()) / time

    most = min(limit + 1, len(tree))
    assert len(chosen) <= most
    assert speed(len(chosen)) == pytest.approx(max(speed(nodes) for nodes in range(1, most + 1)))


def test_nothing_is_verified_when_rows_cost_more_than_drafts_bring():
    tree = merge(9, [Path([1, 2], [0.3, 0.3], "a")])
    assert len(model(LatencyCurve((1, 2, 64), (1.0, 2.0, 64.0))).select(tree, running())) == 1
    assert len(model(LatencyCurve((1, 64), (1.0, 1.01))).select(tree, running())) == 3


def test_a_dip_in_the_curve_is_used():
    """T(2) > T(8) has been measured: a chain of one does not pay, one of seven does."""
    tree = merge(9, [Path(list(range(1, 8)), [0.6] * 7, "a")])
    chosen = model(LatencyCurve((1, 2, 7, 8), (1.0, 2.4, 2.4, 1.3))).select(tree, running())
    assert len(chosen) == 8


def test_more_promised_than_kept_is_discounted():
    budget = model(LatencyCurve((1, 64), (1.0, 3.0)))
    tree = merge(9, [Path([1, 2, 3], [0.9] * 3, "a")])
    assert budget.discount == 1.0
    for _ in range(40):
        budget.observe(tree, [], Verification((0,), (5,)))
    promised = sum(float(tree.values[1:].sum()) * MEMORY**age for age in range(40))
    assert budget.discount == pytest.approx(TRUST / (promised + TRUST))
    for _ in range(200):
        budget.observe(tree, [], Verification((0, 1, 2, 3), (1, 2, 3, 4)))
    assert budget.discount > 1.0


def test_the_gate_closes_after_idle_steps_and_opens_for_a_probe():
    budget = model(LatencyCurve((1, 2, 64), (1.0, 50.0, 50.0)))
    sequence = running()
    tree = merge(9, [Path([1], [0.3], "a")])
    asked = []
    for _ in range(IDLE_STEPS + 3 * PROBE_EVERY):
        asked.append(budget.wants_drafts(sequence))
        budget.select(tree if asked[-1] else NONE_DRAFTED, sequence)
    assert asked[:IDLE_STEPS] == [True] * IDLE_STEPS
    assert asked[IDLE_STEPS:] == ([True] + [False] * (PROBE_EVERY - 1)) * 3


def test_a_draft_that_pays_opens_the_gate_again():
    budget = model(LatencyCurve((1, 64), (1.0, 1.01)))
    sequence = running()
    for _ in range(IDLE_STEPS + 1):
        budget.select(NONE_DRAFTED, sequence)
    assert not budget.wants_drafts(sequence)
    budget.select(merge(9, [Path([1], [0.9], "a")]), sequence)
    assert budget.wants_drafts(sequence)


@pytest.mark.parametrize("policy", ["cost", "fixed"])
def test_no_drafts_are_wanted_for_the_last_token_or_with_a_limit_of_zero(policy):
    def make(limit: int) -> CostModel | FixedBudget:
        curve = LatencyCurve((1,), (1.0,))
        return model(curve, limit) if policy == "cost" else FixedBudget(AcceptanceTable(), limit)

    assert not make(64).wants_drafts(running(room=1))
    assert make(64).wants_drafts(running(room=2))
    assert not make(0).wants_drafts(running())


def test_calibration_goes_on_when_nothing_is_verified():
    table = AcceptanceTable({("x",): 0.5})
    budget = CostModel(LatencyCurve((1,), (1.0,)), table, 0)
    for _ in range(10):
        budget.observe(NONE_DRAFTED, [Path([1], [0.5], "a", bins=[("x",)])], Verification((0,), (1,)))
    assert table.rate(("x",)) > 0.6


@pytest.mark.parametrize(
    ("limit", "least", "expected"), [(64, 0.0, 4), (2, 0.0, 3), (64, 0.5, 2), (0, 0.0, 1)]
)
def test_a_fixed_budget_takes_the_best_that_are_worth_it(limit, least, expected):
    tree = merge(9, [Path([1, 2], [0.6, 0.6], "a"), Path([3], [0.2], "b")])
    assert len(FixedBudget(AcceptanceTable(), limit, least).select(tree, running())) == expected


def test_the_curve_is_read_off_linearly_and_goes_on_with_its_mean_slope():
    curve = LatencyCurve((1, 3, 5), (1.0, 2.0, 5.0), context=100, per_row_token=0.01)
    assert curve.at(50, 7).tolist() == pytest.approx([1, 1.5, 2, 3.5, 5, 6, 7])
    assert curve.at(150, 3).tolist() == pytest.approx([1.5, 2.5, 3.5])


def test_a_curve_of_one_point_is_flat():
    assert LatencyCurve((1,), (2.0,)).at(0, 3).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("rows", "seconds"), [((), ()), ((2,), (1.0,)), ((1, 2), (1.0,))])
def test_a_curve_without_the_time_of_one_row_is_refused(rows, seconds):
    with pytest.raises(InvalidRequest, match="from 1 row on"):
        LatencyCurve(rows, seconds)
