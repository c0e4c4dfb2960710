"""Draft trees against their slow twins, and the laws they keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.tree import CERTAIN, DraftTree, Path, best, likeliest_chain, merge
from tests.reference.trees import (
    ancestor_mask_slow,
    best_slow,
    likeliest_chain_slow,
    merge_slow,
    prefixes_of,
)

RATES = st.one_of(st.sampled_from([0.0, 1e-4, 0.5, 0.9, 1.0]), st.floats(0.0, 1.0))


@st.composite
def drafts(draw: st.DrawFn) -> list[Path]:
    """Paths over few tokens, so that they share prefixes; few origins, so that they repeat."""
    paths = []
    for _ in range(draw(st.integers(0, 7))):
        tokens = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
        rates = draw(st.lists(RATES, min_size=len(tokens), max_size=len(tokens)))
        source = draw(st.sampled_from(["a", "b", "c"]))
        paths.append(Path(tokens, rates, source, draw(st.sampled_from([None, 10, 11, 12]))))
    return paths


@given(drafts(), st.sampled_from([None, 0, 1, 2, 4]))
def test_merge_has_the_nodes_and_values_of_its_definition(paths, max_depth):
    tree = merge(9, paths, max_depth=max_depth)
    values = dict(zip(prefixes_of(tree), tree.values.tolist(), strict=True))
    assert values == pytest.approx(merge_slow(paths, max_depth))


@given(drafts())
def test_nodes_are_distinct_and_parents_stand_before_children(paths):
    tree = merge(9, paths)
    assert len(set(prefixes_of(tree))) == len(tree)
    assert all(parent < node for node, parent in enumerate(tree.parents.tolist()))
    assert tree.depths.tolist() == [len(prefix) for prefix in prefixes_of(tree)]
    assert (tree.tokens[0], tree.values[0], tree.sources[0]) == (9, 1.0, "root")


@given(drafts())
def test_children_are_never_worth_more_than_their_parent(paths):
    tree = merge(9, paths)
    for node in range(len(tree)):
        kids = tree.values[tree.parents == node]
        assert kids.sum() <= CERTAIN * tree.values[node] * (1 + 1e-12)


@given(drafts())
def test_ancestor_mask_is_what_walking_to_the_root_gives(paths):
    tree = merge(9, paths)
    assert tree.ancestor_mask().tolist() == ancestor_mask_slow(tree.parents.tolist())


@given(drafts(), st.integers(0, 30))
def test_best_is_best_first_selection(paths, nodes):
    tree = merge(9, paths)
    assert prefixes_of(best(tree, nodes)) == [
        prefixes_of(tree)[node] for node in best_slow(tree, max(nodes, 1))
    ]


@given(drafts(), st.integers(1, 30))
def test_best_is_a_tree_again_and_keeps_every_fact_of_its_nodes(paths, nodes):
    tree = merge(9, paths)
    cut = best(tree, nodes)
    facts = dict(zip(prefixes_of(tree), zip(tree.values, tree.sources, strict=True), strict=True))
    assert len(cut) == min(nodes, len(tree))
    for prefix, value, source in zip(prefixes_of(cut), cut.values, cut.sources, strict=True):
        assert facts[prefix] == (value, source)


@given(drafts())
def test_likeliest_chain_takes_the_best_child_at_every_node(paths):
    tree = merge(9, paths)
    chain = likeliest_chain(tree)
    assert chain.is_chain()
    assert prefixes_of(chain) == [prefixes_of(tree)[node] for node in likeliest_chain_slow(tree)]


@given(drafts())
def test_a_path_leads_from_the_root_to_its_node(paths):
    tree = merge(9, paths)
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[0] == 0
        assert path[-1] == node
        assert tuple(tree.tokens[path[1:]].tolist()) == prefixes_of(tree)[node]


@given(drafts())
def test_children_finds_every_node_by_parent_and_token(paths):
    tree = merge(9, paths)
    for node in range(1, len(tree)):
        assert tree.children[int(tree.parents[node]), int(tree.tokens[node])] == node


@given(drafts())
def test_a_tree_is_a_chain_when_no_node_has_two_children(paths):
    tree = merge(9, paths)
    counts = np.bincount(tree.parents[1:], minlength=1)
    assert tree.is_chain() == bool((counts <= 1).all())


def test_two_sources_with_one_occurrence_count_once():
    one = merge(0, [Path([1], [0.5], "a", origin=10)])
    two = merge(0, [Path([1], [0.5], "a", origin=10), Path([1], [0.5], "b", origin=10)])
    assert one.values.tolist() == two.values.tolist()


def test_more_sources_of_one_token_never_make_it_worth_more_than_the_surest_says():
    paths = [Path([1], [rate], source, origin) for rate, source, origin in [(0.5, "a", 1), (0.6, "b", 2)]]
    assert merge(0, paths).values[1] == 0.6


def test_the_source_of_a_node_is_the_one_that_is_surest_of_it():
    tree = merge(0, [Path([1], [0.3], "a", origin=1), Path([1], [0.6], "b", origin=2)])
    assert tree.sources == ("root", "b")


def test_on_a_tie_the_first_proposal_is_kept():
    tree = merge(0, [Path([1], [0.4], "a"), Path([2], [0.4], "b")])
    assert best(tree, 2).tokens.tolist() == [0, 1]
    assert likeliest_chain(tree).tokens.tolist() == [0, 1]


def test_siblings_that_claim_too_much_are_scaled_down_together():
    tree = merge(0, [Path([1], [0.9], "a"), Path([2], [0.9], "b")])
    assert tree.values[1:].tolist() == pytest.approx([CERTAIN / 2, CERTAIN / 2])


def test_max_depth_zero_drafts_nothing():
    assert len(merge(0, [Path([1, 2], [1.0, 1.0], "a")], max_depth=0)) == 1


def test_a_path_with_as_many_rates_as_tokens_is_needed():
    with pytest.raises(ValueError, match="zip"):
        merge(0, [Path([1, 2], [0.5], "a")])


def test_root_only_is_one_plain_step():
    tree = DraftTree.root_only(7)
    assert (len(tree), tree.tokens.tolist(), tree.is_chain()) == (1, [7], True)


@settings(max_examples=20)
@given(st.integers(1, 400), st.integers(0, 2**31))
def test_ancestor_mask_of_large_random_trees(nodes, seed):
    dice = np.random.default_rng(seed)
    parents = [-1, *(int(dice.integers(0, node)) for node in range(1, nodes))]
    depths = [0] * nodes
    for node in range(1, nodes):
        depths[node] = depths[parents[node]] + 1
    tree = DraftTree(np.arange(nodes), np.array(parents), np.array(depths), np.ones(nodes), ("root",) * nodes)
    assert tree.ancestor_mask().sum(1).tolist() == [depth + 1 for depth in depths]
