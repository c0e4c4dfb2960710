"""Token recycling: what it learns, and that its tree is the best one."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from echodraft.decoding.sequence import Verification
from echodraft.decoding.tree import merge
from echodraft.drafters.registry import build
from echodraft.targets.fake import ScriptedRows, ScriptedTarget
from tests.drafters.runs import context, run, sequence_of
from tests.reference.copying import recycled_nodes_slow


def rows(best, positions=()):
    return ScriptedRows(torch.empty(0), {}, positions, np.array(best))


def learned(ids, best, **options):
    drafter = build("token_recycling", context(), options)
    sequence = sequence_of(ids)
    drafter.start(sequence, rows(best, range(len(best))))
    return drafter, sequence


@pytest.mark.parametrize("seed", range(30))
def test_the_tree_is_the_best_of_all_nodes_reachable(seed):
    generator = random.Random(seed)
    tokens = list(range(6))
    table = [generator.sample(range(8), 3) for _ in tokens]
    drafter, sequence = learned(tokens, table, nodes=10, successors=3, max_depth=3)
    rates = [[drafter.table.rate(("recycling", depth, rank)) for rank in range(3)] for depth in range(3)]
    nodes = recycled_nodes_slow(dict(zip(tokens, table, strict=True)), sequence.root, rates)
    paths = drafter.propose(sequence)
    proposed = {tuple(path.tokens[: i + 1]) for path in paths for i in range(len(path.tokens))}
    assert len(proposed) == min(10, len(nodes))
    assert proposed <= set(nodes)
    worst = min(nodes[node] for node in proposed)
    assert all(value <= worst + 1e-12 for node, value in nodes.items() if node not in proposed)


def test_a_shared_prefix_is_scored_once():
    drafter, sequence = learned([1, 2], [[5, 6], [1, 7]], successors=2, max_depth=2)
    paths = drafter.propose(sequence)
    firsts = [path.bins[0] for path in paths if path.tokens[0] == 1]
    assert len(firsts) == 2
    assert sum(key is not None for key in firsts) == 1


def test_rejected_nodes_teach_and_the_accepted_occurrence_wins():
    drafter, sequence = learned([1, 2], [[5, 6], [1, 7]], successors=2)
    tree = merge(2, [])
    drafter.observe(sequence, tree, rows([[3, 4]]), Verification((0,), (3,)))
    assert drafter.successors(2) == [3, 4]
    # token 9 twice in one tree: node 1 is accepted, node 3 is not
    from echodraft.decoding.tree import Path

    tree = merge(2, [Path([9, 8], [0.9, 0.9], "a"), Path([7, 9], [0.1, 0.9], "a")])
    nodes = tree.tokens.tolist()
    assert nodes.count(9) == 2
    best = [[100 + i, 200 + i] for i in range(len(tree))]
    drafter.observe(sequence, tree, rows(best), Verification((0, 1), (9, 4)))
    assert drafter.successors(9) == [101, 201]
    assert drafter.successors(7) == [103, 203]


def test_an_unknown_root_gives_no_draft():
    drafter, _ = learned([1, 2], [[5, 6], [1, 7]])
    assert drafter.propose(sequence_of([1, 50])) == []


def test_the_scripted_target_seeds_distinct_tokens_most_frequent_first():
    prompt = [4, 5, 4, 6, 4, 5, 7]
    top = np.arange(2 * 12).reshape(12, 2)
    drafter = build("token_recycling", context(), {"prompt_seeds": 2})
    target = ScriptedTarget([1] * 5, successors=top)
    positions = target.prefill(sequence_of(prompt), drafter.needs).positions
    assert list(positions) == [4, 5, 6]  # last 4, last 5, and the last token


def test_seeds_from_the_prompt_help_from_the_first_step():
    follow = {1: 2, 2: 3, 3: 1}
    prompt = [1, 2, 3, 1]
    script = [2, 3, 1, 2, 3, 1, 2, 3]
    top = np.array([[follow[token], 9] for token in [*prompt, *script]])
    _, seeded, _ = run("token_recycling", prompt, script, successors=top)
    _, bare, _ = run("token_recycling", prompt, script, {"prompt_seeds": 0}, successors=top)
    assert seeded.steps < bare.steps
