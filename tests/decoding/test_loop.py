"""The decode loop: drafts never change the result, whatever is drafted, wanted, stopped at or decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import Needs, Rows, Target
from echodraft.decoding.loop import decode
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import DraftTree, Path
from echodraft.decoding.verification import GreedyVerifier
from echodraft.policies.cost_model import CostModel, FixedBudget, LatencyCurve
from echodraft.targets.fake import ScriptedTarget
from echodraft.targets.huggingface.architectures import wrap
from tests import tiny
from tests.doubles import DRAFTERS, Oracle, Prefix, RandomTree, SecondSibling, Silent, Wrong, prompt_of, run

SCRIPT = [(i * i * 7 + i) % 97 for i in range(60)]
PROMPT = prompt_of(1)

TARGETS: dict[str, Callable[[], Target]] = {
    "scripted": lambda: ScriptedTarget(SCRIPT),
    "llama": lambda: wrap(tiny.shared("llama")),
    "gemma3_window4": lambda: wrap(tiny.shared("gemma3_window4")),
    "gpt2_plain_cache": lambda: wrap(tiny.shared("gpt2")),
    "bloom_chains": lambda: wrap(tiny.shared("bloom")),
}


@pytest.fixture(scope="module", params=list(TARGETS))
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]()


class Counted:
    """A target that counts its forwards and holds the loop to its contract; nothing of ours counts."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.info = target.info
        self.forwards = 0
        self.rows = 0
        self.live: set[int] = set()
        self.open = False

    def prefill(self, sequence: Sequence, needs: Needs, progress: Any = None) -> Rows:
        self.live.add(id(sequence))
        return self.target.prefill(sequence, needs, progress)

    def verify(self, sequence: Sequence, tree: DraftTree) -> Rows:
        assert not self.open, "verify before the last one was committed"
        assert sequence.committed == len(sequence.ids) - 1
        assert tree.tokens[0] == sequence.root
        assert sequence.committed + int(tree.depths.max()) < self.info.context_limit
        assert tree.is_chain() or not self.info.chains_only
        self.open = True
        self.forwards += 1
        self.rows += len(tree)
        return self.target.verify(sequence, tree)

    def commit(self, sequence: Sequence, nodes: Any) -> None:
        assert self.open
        assert list(nodes) == sorted(set(nodes))
        assert nodes[0] == 0
        self.open = False
        self.target.commit(sequence, nodes)

    def release(self, sequence: Sequence) -> None:
        self.live.discard(id(sequence))
        self.target.release(sequence)


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts_never_change_the_result(name, target):
    """Fault reports 1-4 (end tokens anywhere in a draft), 19-21 (limits exact), 61 (greedy text equal)."""
    whole = run(target, PROMPT).ids
    ends: list[list[int]] = [
        [],
        [tiny.VOCABULARY - 1],
        [whole[0]],
        *([whole[i]] for i in (3, 4, 5, 8, 9, 10)),
    ]
    for end in ends:
        for limit in (0, 1, 2, 5, 40):
            plain = run(target, PROMPT, limit=limit, end=end)
            assert len(plain.ids) <= limit
            drafted = run(Counted(target), PROMPT, DRAFTERS[name](whole), limit=limit, end=end)
            assert drafted.outcome == plain.outcome, (end, limit)
            assert drafted.statistics.tokens + (limit > 0) == len(plain.ids)
            assert drafted.statistics.sources[: len(plain.ids)] == drafted.statistics.sources or limit == 0


@pytest.mark.parametrize("k", [1, 3, 4, 8])
def test_an_oracle_of_k_tokens_gives_exactly_k_plus_1_per_forward(k, target):
    """Also fault report 73 (SGLang#11572): accepted never exceeds drafted, the next root is no draft."""
    steps = 5
    whole = run(target, PROMPT, limit=1 + steps * (k + 1)).ids
    counted = Counted(target)
    result = run(counted, PROMPT, Oracle(text=whole, k=k), limit=len(whole))
    assert counted.forwards == steps
    assert counted.rows == steps * (k + 1)
    assert {len(step.tokens) for step in result.steps[1:]} == {k + 1}
    statistics = result.statistics
    assert statistics.mat == k + 1
    assert (
        sum(statistics.accepted_by_source.values()) == sum(statistics.drafted_by_source.values()) == steps * k
    )


@pytest.mark.parametrize("limit", range(1, 7))
@pytest.mark.parametrize("make", [Oracle, Prefix, Wrong])
def test_the_limit_holds_in_every_place_of_a_block(make, limit, target):
    """Fault report 20 (lattice#242): budgets of 1 to 6 against drafts of 4."""
    whole = run(target, PROMPT).ids
    assert len(run(target, PROMPT, make(text=whole, k=4), limit=limit).ids) == limit


def test_wrong_drafts_cost_rows_and_no_forwards(target):
    whole = run(target, PROMPT).ids
    counted = Counted(target)
    result = run(counted, PROMPT, Wrong(text=whole, k=4))
    assert result.ids == whole
    assert counted.forwards == len(whole) - 1
    assert not result.statistics.accepted_by_source
    assert result.statistics.mat == 1


def test_marks_say_which_tokens_were_drafted(target):
    """Fault report 77 (mlx-engine#111): PREFIX(2, 4) gives T T F T T F ..."""
    whole = run(target, PROMPT, limit=13).ids
    result = run(target, PROMPT, Prefix(text=whole, j=2, k=4), limit=13)
    assert result.statistics.sources == ["root", *["prefix", "prefix", "root"] * 4]


def test_nothing_after_an_end_token_is_counted():
    """Fault report 2 (SGLang#39826): usage counters stop where the output does."""
    script = [5, 6, 7, 8, 2, 9, 9, 9, 9]
    result = run(ScriptedTarget(script), PROMPT, Oracle(text=script, k=8), end=[2])
    assert result.outcome == ([5, 6, 7, 8, 2], "stop")
    statistics = result.statistics
    assert statistics.tokens == 4
    assert sum(statistics.accepted_by_source.values()) == 4
    assert len(statistics.sources) == 5
    assert sum(statistics.accepted_by_depth.values()) == 4


def test_an_end_token_on_a_rejected_branch_has_no_effect():
    """Fault report 3 (TensorRT-LLM#1449), through the loop."""
    script = list(range(10, 30))

    class Branches(Silent):
        def propose(self, sequence: Sequence) -> list[Path]:
            ahead = script[sequence.output_length : sequence.output_length + 3]
            return (
                [Path([2, 2], [0.9, 0.9], "end"), Path(ahead, [0.5] * len(ahead), "right")] if ahead else []
            )

    result = run(ScriptedTarget(script), PROMPT, Branches(), limit=12, end=[2])
    assert result.outcome == (script[:12], "length")
    assert result.statistics.accepted_by_source == {"right": 8}


def test_a_drafter_that_finds_nothing_gives_one_token_a_step():
    """Fault reports 50 (llama.cpp#23268) and 67 (transformers#27775): no dummy drafts, no stall."""
    counted = Counted(ScriptedTarget(SCRIPT))
    result = run(counted, PROMPT, Silent(), limit=20)
    assert counted.forwards == counted.rows == 19
    assert result.statistics.nodes == 0
    assert not result.statistics.drafted_by_source


def test_a_budget_that_flips_costs_no_forwards():
    """Fault report 82 (vLLM#5000): budgets 0 and 4 in turn; a step of budget 0 is a plain step."""

    class Flipping(FixedBudget):
        turn = False

        def wants_drafts(self, sequence: Sequence) -> bool:
            self.turn = not self.turn
            return self.turn

    script = SCRIPT[:37]
    counted = Counted(ScriptedTarget(script))
    result = run(counted, PROMPT, Oracle(text=script, k=4), limit=37, budget=Flipping(AcceptanceTable(), 4))
    assert result.ids == script
    assert counted.forwards == 12  # (5 + 1) tokens every two forwards
    assert counted.rows == 6 * 5 + 6


@pytest.mark.parametrize("most", [0, 1, 3])
def test_the_number_of_drafted_nodes_is_the_one_asked_for(most):
    """Fault report 86 (transformers#40739): the caller's number reaches the drafting."""
    for budget in (
        FixedBudget(AcceptanceTable(), most),
        CostModel(LatencyCurve((1, 64), (1.0, 1.0)), AcceptanceTable(), most),
    ):
        target = Counted(ScriptedTarget(SCRIPT))
        result = run(target, PROMPT, Oracle(text=SCRIPT, k=8), limit=41, budget=budget)
        assert result.statistics.mat == 1 + most
        assert max(result.statistics.budgets) == most


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 30), st.integers(1, 12), st.integers(1, 40))
def test_random_trees_under_random_budgets_change_nothing(seed, budget, depth, limit):
    target = ScriptedTarget(SCRIPT)
    drafter = RandomTree(text=SCRIPT, seed=seed, depth=depth)
    result = run(Counted(target), PROMPT, drafter, limit=limit, budget=FixedBudget(AcceptanceTable(), budget))
    assert result.ids == (SCRIPT + [0] * limit)[:limit]
    assert not target.live


def steps_of(target: Target, drafter: Any, limit: int = 40) -> tuple[Sequence, Any]:
    sequence = Sequence(PROMPT, StopRule(frozenset(), limit))
    budget = FixedBudget(AcceptanceTable())
    return sequence, decode(target, drafter, budget, GreedyVerifier(), sequence, Statistics())


def test_closing_early_frees_the_rows(target):
    counted = Counted(target)
    _, steps = steps_of(counted, Silent())
    next(steps)
    next(steps)
    assert counted.live
    steps.close()
    assert not counted.live


def test_dropping_the_iterator_frees_the_rows(target):
    counted = Counted(target)
    _, steps = steps_of(counted, Silent())
    next(steps)
    del steps
    assert not counted.live


def test_an_iterator_that_never_ran_holds_nothing(target):
    counted = Counted(target)
    _, steps = steps_of(counted, Silent())
    steps.close()
    assert not counted.live


@pytest.mark.parametrize("where", ["start", "propose", "observe"])
def test_a_drafter_that_raises_leaves_no_rows(where, target):
    class Broken(Silent):
        pass

    def explode(*args: Any) -> Any:
        raise ZeroDivisionError(where)

    setattr(Broken, where, explode)
    counted = Counted(target)
    _, steps = steps_of(counted, Broken())
    with pytest.raises(ZeroDivisionError, match=where):
        list(steps)
    assert not counted.live


def test_two_sequences_on_one_target_do_not_disturb_each_other(target):
    """Interleaved step by step, one with right drafts and one with trees."""
    first, second = prompt_of(2), prompt_of(3, 5)
    plain = [run(target, prompt, limit=30).ids for prompt in (first, second)]
    sequences = [Sequence(prompt, StopRule(frozenset(), 30)) for prompt in (first, second)]
    drafters = [Prefix(text=plain[0], j=2, k=5), SecondSibling(text=plain[1], k=4)]
    runs = [
        decode(target, drafter, FixedBudget(AcceptanceTable()), GreedyVerifier(), sequence, Statistics())
        for drafter, sequence in zip(drafters, sequences, strict=True)
    ]
    alive = list(runs)
    while alive:
        alive = [steps for steps in alive if next(steps, None) is not None]
    assert [sequence.output for sequence in sequences] == plain


def test_drafts_stop_where_the_target_takes_none():
    target = ScriptedTarget(SCRIPT, draft_limit=len(PROMPT) + 10)
    deepest: list[int] = []

    class Watched(Counted):
        def verify(self, sequence: Sequence, tree: DraftTree) -> Rows:
            deepest.append(sequence.committed + int(tree.depths.max()))
            if len(tree) > 1:
                assert deepest[-1] < len(PROMPT) + 10
            return super().verify(sequence, tree)

    result = run(Watched(target), PROMPT, Oracle(text=SCRIPT, k=4), limit=30)
    assert result.ids == SCRIPT[:30]
    assert result.statistics.accepted_by_source["oracle"] > 4
    assert max(deepest) == len(PROMPT) + 28


def test_targets_that_refuse_siblings_get_the_likeliest_chain():
    target = ScriptedTarget(SCRIPT)
    target.info = replace(target.info, chains_only=True)
    drafter = SecondSibling(text=SCRIPT, k=4)
    result = run(Counted(target), PROMPT, drafter, limit=30)
    assert result.ids == SCRIPT[:30]
    assert result.statistics.nodes > 0


@pytest.mark.parametrize("length", [125, 126, 127])
def test_the_context_limit_ends_every_output_exactly(length, target):
    """Fault reports 21-23: drafts are clipped to the room left, also where positions are learned."""
    if target.info.context_limit > 1000:
        target = ScriptedTarget(SCRIPT, context_limit=128)
    prompt = prompt_of(4, length, 1)
    plain = run(target, prompt)
    assert len(plain.ids) == 128 - length
    for name in ("oracle8", "fan", "random_tree"):
        assert run(Counted(target), prompt, DRAFTERS[name](plain.ids)).outcome == plain.outcome


def test_statistics_add_up(target):
    whole = run(target, PROMPT).ids
    result = run(target, PROMPT, RandomTree(text=whole, seed=3))
    statistics = result.statistics
    steps: list[Verification] = result.steps[1:]
    assert statistics.steps == len(steps) == sum(statistics.budgets.values())
    assert statistics.tokens == sum(len(step.tokens) for step in steps) == len(whole) - 1
    accepted = sum(len(step.nodes) - 1 for step in steps)
    assert statistics.tokens == accepted + statistics.steps
    assert (
        accepted == sum(statistics.accepted_by_source.values()) == sum(statistics.accepted_by_depth.values())
    )
    drafted = sum(nodes * times for nodes, times in statistics.budgets.items())
    assert statistics.nodes == drafted == sum(statistics.drafted_by_source.values())
    assert statistics.drafted_steps == statistics.drafted_by_depth[0]
    assert len(statistics.sources) == len(whole)
    for source, count in statistics.accepted_by_source.items():
        assert count == statistics.sources.count(source) <= statistics.drafted_by_source[source]
