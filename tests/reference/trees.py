"""Slow twins of `decoding.tree`: every definition as a loop, to be believed by reading."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from echodraft.decoding.tree import CERTAIN, FLOOR, DraftTree, Path

Prefix = tuple[int, ...]


def ancestor_mask_slow(parents: Sequence[int]) -> list[list[bool]]:
    """Row i is true at i and at every node on its way to the root."""
    mask = [[False] * len(parents) for _ in parents]
    for start in range(len(parents)):
        node = start
        while node != -1:
            mask[start][node] = True
            node = parents[node]
    return mask


def prefixes_of(tree: DraftTree) -> list[Prefix]:
    """The tokens from below the root down to each node."""
    found: list[Prefix] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        found.append(() if parent < 0 else (*found[parent], token))
    return found


def merge_slow(paths: Sequence[Path], max_depth: int | None = None) -> dict[Prefix, float]:
    """Value by prefix: what the docstring of `merge` says, prefix by prefix."""
    order: list[Prefix] = [()]
    for path in paths:
        likely = 1.0
        for depth in range(len(path.tokens)):
            likely *= path.rates[depth]
            if likely < FLOOR or (max_depth is not None and depth >= max_depth):
                break
            prefix = tuple(path.tokens[: depth + 1])
            if prefix not in order:
                order.append(prefix)
    values: dict[Prefix, float] = {(): 1.0}
    for prefix in sorted(order, key=len):
        if not prefix:
            continue
        siblings = [other for other in order if len(other) == len(prefix) and other[:-1] == prefix[:-1]]
        rates = {sibling: _rate(sibling, paths, max_depth) for sibling in siblings}
        total = sum(rates.values())
        scale = CERTAIN / total if total > CERTAIN else 1.0
        values[prefix] = values[prefix[:-1]] * rates[prefix] * scale
    return values


def _rate(prefix: Prefix, paths: Sequence[Path], max_depth: int | None) -> float:
    """The best rate that a path which reaches `prefix` gives its last token: evidence never adds up."""
    rates = [0.0]
    for path in paths:
        if tuple(path.tokens[: len(prefix)]) != prefix or (max_depth is not None and len(prefix) > max_depth):
            continue
        likely = 1.0
        reached = True
        for rate in path.rates[: len(prefix)]:
            likely *= rate
            reached = reached and likely >= FLOOR
        if reached:
            rates.append(path.rates[len(prefix) - 1])
    return max(rates)


def best_slow(tree: DraftTree, nodes: int) -> list[int]:
    """Best-first: from the chosen nodes, add the most valuable child, the one proposed first on a tie."""
    chosen = [0]
    while len(chosen) < min(nodes, len(tree)):
        frontier = [
            node for node in range(1, len(tree)) if node not in chosen and int(tree.parents[node]) in chosen
        ]
        chosen.append(max(frontier, key=lambda node: (tree.values[node], -node)))
    return sorted(chosen)


def likeliest_chain_slow(tree: DraftTree) -> list[int]:
    """From the root down, always to the most valuable child."""
    chain = [0]
    while kids := [node for node in range(len(tree)) if int(tree.parents[node]) == chain[-1]]:
        chain.append(max(kids, key=lambda node: (tree.values[node], -node)))
    return chain


def accept_slow(tree: DraftTree, choices: Sequence[int]) -> list[int]:
    """Greedy verification by trying all paths: the longest one whose every token its parent chose."""
    longest = [0]
    for node in range(len(tree)):
        path = tree.path(node)
        agreed = all(int(tree.tokens[child]) == choices[parent] for parent, child in pairwise(path))
        if agreed and len(path) > len(longest):
            longest = path
    return longest
