"""Token recycling: the target's runner-up tokens of an earlier forward, tried again.

A table keeps for every token the k most likely successors the target gave it when it was last
forwarded (also as a rejected draft, also in the prompt). Following it from the root gives a tree of
likely continuations without any text match, which fills the gaps that retrieval leaves. The shape of
the tree comes from measured acceptance per (depth, rank), not from a fixed template.
Source: Token Recycling (Luo et al., ACL 2025); seeding from the prefill and calibrated shape are ours.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import Bin, DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option

__all__ = ["TokenRecyclingConfig", "TokenRecyclingDrafter"]

DEEP = 3  # depths from here on share their bins


@dataclass(frozen=True, slots=True)
class TokenRecyclingConfig:
    """Options of `token_recycling`."""

    nodes: int = option(28, "most nodes proposed per step")
    successors: int = option(8, "successors kept per token")
    max_depth: int = option(6, "deepest node")
    prompt_seeds: int = option(64, "distinct prompt tokens whose logits seed the table (0: none)")

    def __post_init__(self) -> None:
        at_least(self, nodes=1, successors=1, max_depth=1, prompt_seeds=0)


class TokenRecyclingDrafter(BaseDrafter[TokenRecyclingConfig]):
    """A tree of recycled successors, best first by the product of measured rates.

    The table of one sequence starts empty (cold); memory is that of the tokens seen.
    """

    name = "token_recycling"
    reference = "Token Recycling (ACL 2025), seeded from the prefill"
    Config = TokenRecyclingConfig

    def __init__(self, config: TokenRecyclingConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._successors: dict[int, list[int]] = {}

    @property
    def needs(self) -> Needs:
        """Logits of some prompt positions, to start with."""
        return Needs(prompt_logits=self.config.prompt_seeds)

    def successors(self, token: int) -> list[int]:
        """Likely successors of `token`, best first; empty if it was never forwarded."""
        return self._successors.get(token, [])

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Seed the table from the prompt's logits."""
        tokens = [int(sequence.ids[position]) for position in rows.positions]
        self._learn(tokens, rows, list(range(len(tokens))))

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Keep the successors of every node; for a repeated token the accepted, else deepest one stays."""
        accepted = set(result.nodes)
        order = sorted(range(len(tree)), key=lambda node: (node in accepted, node))
        self._learn(tree.tokens[order].tolist(), rows, order)

    def propose(self, sequence: Sequence) -> list[Path]:
        """The leaves of the best `nodes` nodes reachable in the table, as paths."""
        return self.recycle(sequence.root, "recycling")

    def recycle(self, root: int, kind: str) -> list[Path]:
        """As `propose`, with bins of this kind: beside copies it is right less often than alone."""
        bins: list[list[Bin]] = [
            [(kind, min(depth, DEEP), rank) for rank in range(self.config.successors)]
            for depth in range(self.config.max_depth)
        ]
        rates = [[self.table.rate(key) for key in level] for level in bins]
        heap: list[tuple[float, int, tuple[int, ...], tuple[int, ...]]] = []
        self._expand(heap, 1.0, root, (), (), rates)
        chosen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        while heap and len(chosen) < self.config.nodes:
            value, _, tokens, ranks = heapq.heappop(heap)
            chosen.append((tokens, ranks))
            if len(tokens) < self.config.max_depth:
                self._expand(heap, -value, tokens[-1], tokens, ranks, rates)
        return self._paths(chosen, rates, bins)

    def _expand(
        self,
        heap: list[tuple[float, int, tuple[int, ...], tuple[int, ...]]],
        value: float,
        token: int,
        tokens: tuple[int, ...],
        ranks: tuple[int, ...],
        rates: list[list[float]],
    ) -> None:
        level = rates[len(tokens)]
        for rank, successor in enumerate(self.successors(token)):
            order = len(heap) + 64 * len(tokens)  # ties: shallow first, then by rank
            heapq.heappush(heap, (-value * level[rank], order, (*tokens, successor), (*ranks, rank)))

    def _paths(
        self,
        chosen: list[tuple[tuple[int, ...], tuple[int, ...]]],
        rates: list[list[float]],
        bins: list[list[Bin]],
    ) -> list[Path]:
        inner = {tokens[:-1] for tokens, _ in chosen}
        scored: set[tuple[int, ...]] = set()  # a prefix shared by several paths is scored once
        paths = []
        for tokens, ranks in chosen:
            if tokens in inner:
                continue
            keys: list[Bin | None] = []
            for depth, rank in enumerate(ranks):
                prefix = tokens[: depth + 1]
                keys.append(None if prefix in scored else bins[depth][rank])
                scored.add(prefix)
            level_rates = [rates[depth][rank] for depth, rank in enumerate(ranks)]
            paths.append(Path(tokens, level_rates, self.name, None, keys))
        return paths

    def _learn(self, tokens: list[int], rows: Rows, row_ids: list[int]) -> None:
        if tokens:
            best = rows.top(row_ids, self.config.successors).tolist()
            known = zip(tokens, best, strict=True)
            self._successors.update((token, row) for token, row in known if row[0] >= 0)
