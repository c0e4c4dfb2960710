"""Draft trees: guesses after the root, merged from many sources and cut to a budget.

A drafter proposes `Path`s: a run of tokens, each with the probability that it is accepted once those
before it were. `merge` joins the paths into one `DraftTree` so that shared prefixes are verified once,
and gives every node its *value*, the estimated probability that the node is accepted. `best` cuts the
tree to the most valuable nodes. Siblings exclude each other (only one token can come next), so the
values of a node's children never add up to more than the node's own; a child never outweighs its parent,
hence the best nodes always form a tree again. Own derivation, after the trees of SpecInfer and Sequoia.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bin", "DraftTree", "Path", "best", "likeliest_chain", "merge"]

# What is said of a token before it is verified (source, match length, rank, ...): acceptance is
# measured per bin. `None` marks a token that another path of the same draft already accounts for.
Bin = tuple[object, ...]

ROOT = "root"  # the source of node 0
FLOOR = 1e-3  # a node less likely than this is never worth a row (T(64) < 64 T(1) everywhere measured)
CERTAIN = 0.995  # the most that guesses may claim together


@dataclass(frozen=True, slots=True)
class Path:
    """A run of drafted tokens that follows the root.

    tokens: the tokens, next to the root first; at least one.
    rates:  rates[i] in [0, 1], the probability that tokens[i] is accepted given tokens[:i] were.
    source: the drafter (and class) that proposed it; statistics are counted by it.
    origin: position in the context that tokens[0] was copied from (tokens[i] from origin + i), or None
            if it is no copy. What follows a copy that broke off is found by it.
    bins:   bins[i] is the calibration bin of tokens[i]; may be empty.
    """

    tokens: Sequence[int]
    rates: Sequence[float]
    source: str
    origin: int | None = None
    bins: Sequence[Bin | None] = ()


@dataclass(frozen=True)
class DraftTree:
    """The root and the drafted nodes as flat arrays; parents stand before their children.

    tokens:  int64 [B], tokens[0] is the root.
    parents: int64 [B], parents[0] is -1.
    depths:  int64 [B], depths[0] is 0.
    values:  float64 [B], estimated probability of acceptance; values[0] is 1.
    sources: B names; sources[0] is "root".
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    values: NDArray[np.float64]
    sources: tuple[str, ...]

    @classmethod
    def root_only(cls, root: int) -> DraftTree:
        """A tree that drafts nothing: verifying it is one plain step."""
        return _tree([root], [-1], [0], [1.0], [ROOT])

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def children(self) -> dict[tuple[int, int], int]:
        """Node by (parent, token)."""
        keys = zip(self.parents.tolist(), self.tokens.tolist(), strict=True)
        return {key: node for node, key in enumerate(keys)}

    def ancestor_mask(self) -> NDArray[np.bool_]:
        """Bool [B, B]: row i is true at node i and at all its ancestors."""
        mask = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents.tolist()[1:], start=1):
            mask[node] |= mask[parent]
        return mask

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`, both included."""
        nodes = []
        while node != -1:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def is_chain(self) -> bool:
        """Whether every node has at most one child."""
        return bool(np.array_equal(self.parents, np.arange(-1, len(self) - 1)))

    def take(self, nodes: NDArray[np.int64]) -> DraftTree:
        """The subtree of `nodes` (increasing, prefix-closed, with node 0)."""
        renumbered = np.full(len(self) + 1, -1)  # the last cell serves parent -1
        renumbered[nodes] = np.arange(len(nodes))
        return DraftTree(
            tokens=self.tokens[nodes],
            parents=renumbered[self.parents[nodes]],
            depths=self.depths[nodes],
            values=self.values[nodes],
            sources=tuple(self.sources[node] for node in nodes.tolist()),
        )


def merge(root: int, paths: Iterable[Path], *, max_depth: int | None = None) -> DraftTree:
    """Join `paths` below `root`, and give each node its value.

    Tokens whose own path is less likely than FLOOR, or deeper than `max_depth`, are left out. A node that
    several paths reach keeps the best rate, and that path's source: paths that copy the same text are one
    piece of evidence however many they are, and whoever knows better has weighed them already.
    """
    tokens, parents, depths, sources, rates = [root], [-1], [0], [ROOT], [1.0]
    children: list[dict[int, int]] = [{}]
    for path in paths:
        node, reached = 0, 1.0
        for i, (token, rate) in enumerate(zip(path.tokens, path.rates, strict=True)):
            reached *= rate
            if reached < FLOOR or i == max_depth:
                break
            child = children[node].get(token)
            if child is None:
                child = len(tokens)
                children[node][token] = child
                tokens.append(token)
                parents.append(node)
                depths.append(i + 1)
                sources.append(path.source)
                rates.append(rate)
                children.append({})
            elif rate > rates[child]:
                rates[child], sources[child] = rate, path.source
            node = child
    return _tree(tokens, parents, depths, _values(children, rates), sources)


def best(tree: DraftTree, nodes: int) -> DraftTree:
    """The `nodes` most valuable nodes (root included) as a tree; ties go to the one proposed first."""
    if nodes >= len(tree):
        return tree
    order = np.argsort(-tree.values, kind="stable")[: max(nodes, 1)]
    return tree.take(np.sort(order))


def likeliest_chain(tree: DraftTree) -> DraftTree:
    """The path that takes the most valuable child at every node, for targets that refuse siblings."""
    nodes = [0]
    while True:
        kids = np.flatnonzero(tree.parents == nodes[-1])
        if not len(kids):
            return tree.take(np.array(nodes, dtype=np.int64))
        nodes.append(int(kids[np.argmax(tree.values[kids])]))


def _values(children: list[dict[int, int]], rates: list[float]) -> list[float]:
    values = [1.0] * len(children)
    for node, kids in enumerate(children):
        total = sum(rates[kid] for kid in kids.values())
        share = values[node] * (CERTAIN / total if total > CERTAIN else 1.0)
        for kid in kids.values():
            values[kid] = share * rates[kid]
    return values


def _tree(
    tokens: list[int], parents: list[int], depths: list[int], values: list[float], sources: list[str]
) -> DraftTree:
    return DraftTree(
        tokens=np.array(tokens, dtype=np.int64),
        parents=np.array(parents, dtype=np.int64),
        depths=np.array(depths, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        sources=tuple(sources),
    )


if __name__ == "__main__":
    demo = merge(7, [Path([1, 2, 3], [0.9, 0.8, 0.8], "a", origin=10), Path([1, 5], [0.4, 0.5], "b")])
    for node in range(len(demo)):
        indent = "  " * int(demo.depths[node])
        print(f"{indent}{demo.tokens[node]}  value {demo.values[node]:.2f}  from {demo.sources[node]}")
