"""SRSD: the target's own hidden states as an index of its context.

A state of a middle layer says what the text is about to do better than the last few tokens do. At every
step the state that produced the root, h[n-1], is compared with all earlier ones; where they are alike,
what followed then is drafted now. Three kinds of guesses go into one tree:

- A, anchored: the earlier place produced the root too. Copy what came after it. Ranked by similarity
  plus match length, so that of many occurrences of a common token the fitting one is copied.
- S, substitution: the root differs, but takes the same slot (a renamed or corrected word). Copy what
  came after the slot. Text matching cannot do this at all.
- P, pointer: where the last copy stood when it broke off, carried across the edit.

Surprise: the query is h[n-1], never h[n] (the root has no state yet), and key j belongs to the slot j+1:
if j is retrieved, the draft starts at j+2. Source: SRSD (Findings of EMNLP 2026), whose parameters are
not public; classes, ranking and calibration are our specification (docs/methods/srsd.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import Bin, DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option
from echodraft.drafters.copying import CopyRates, common_suffix, copy_end, match_bin
from echodraft.drafters.pointer import CopyPointer
from echodraft.drafters.state_index import StateIndex

__all__ = ["SRSDConfig", "SRSDDrafter"]

SIMILARITY_BINS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FAR = 6  # continuation depths of S and P drafts beyond this share a bin


@dataclass(frozen=True, slots=True)
class SRSDConfig:
    """Options of `srsd`. Layers are given as a share of the target's depth (0.5: the middle)."""

    anchor_depth: float = option(0.5, "layer that ranks anchored candidates, as a share of depth")
    substitution_depth: float = option(0.8, "layer that finds substitutions, as a share of depth")
    anchored: int = option(4, "most anchored candidates (class A)")
    substitutions: int = option(4, "most substitution candidates (class S)")
    substitution_match: int = option(3, "draft S and P only while the best match is at most so long")
    offsets: int = option(4, "places tried around the pointer (class P)")
    max_length: int = option(64, "longest anchored draft, in tokens")
    base_length: int = option(4, "length of an anchored draft after a match of no tokens")
    per_match: int = option(4, "tokens more per token matched")
    branch_length: int = option(6, "length of S and P drafts")
    match_weight: float = option(0.02, "what a matched token counts against similarity when ranking")

    def __post_init__(self) -> None:
        at_least(
            self, anchor_depth=0, substitution_depth=0, anchored=1, substitutions=0, substitution_match=0,
            offsets=0, max_length=1, base_length=1, per_match=0, branch_length=1, match_weight=0,
        )  # fmt: skip


class SRSDDrafter(BaseDrafter[SRSDConfig]):
    """Copies of what followed similar states. Keeps one index row per committed token and layer."""

    name = "srsd"
    reference = "SRSD (Findings of EMNLP 2026), own specification"
    Config = SRSDConfig

    def __init__(self, config: SRSDConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._anchor_layer = _block(config.anchor_depth, self.info.num_layers)
        self._slot_layer = _block(config.substitution_depth, self.info.num_layers)
        self._index = {layer: StateIndex() for layer in (self._anchor_layer, self._slot_layer)}
        self._anchored_rates = CopyRates(self.table, "A")
        self._pointer = CopyPointer()
        self._proposed: list[Path] = []

    @property
    def needs(self) -> Needs:
        """States of the two layers."""
        return Needs(layers=frozenset(self._index))

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Index the prompt."""
        for layer, index in self._index.items():
            index.append(rows.states[layer])

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Index the committed rows, and see which copy was followed how far."""
        for layer, index in self._index.items():
            index.append(rows.states[layer][list(result.nodes)])
        self._pointer.advance(self._proposed, result.tokens)
        self._proposed = []

    def propose(self, sequence: Sequence) -> list[Path]:
        """Anchored paths, best first, then substitutions and pointer paths where no long match stands."""
        ids = sequence.ids
        paths, best_match = self._anchored(ids)
        if best_match <= self.config.substitution_match:
            paths += self._substituted(ids)
            paths += self._pointed(ids)
        self._proposed = paths
        return paths

    def similarity(self, layer: int | None = None) -> NDArray[np.float32]:
        """Float32 [n]: similarity of the state before the root to every earlier one (itself: -1)."""
        return self._index[self._anchor_layer if layer is None else layer].similarity()

    def _anchored(self, ids: NDArray[np.int64]) -> tuple[list[Path], int]:
        """Class A: earlier occurrences of the root, ranked by similarity and match length."""
        last = len(ids) - 1
        ends = np.flatnonzero(ids[1:last] == ids[last]) + 1
        if not len(ends):
            return [], 0
        similarity = self.similarity()[ends - 1]
        matches = common_suffix(ids, ends, last)
        score = similarity + self.config.match_weight * matches
        order = np.lexsort((-ends, -score))  # of equals the most recent
        paths: list[Path] = []
        drafted: set[int] = set()
        for i in order.tolist():
            start, match = int(ends[i]) + 1, int(matches[i])
            token = int(ids[start])
            if token in drafted:
                continue
            rank = len(drafted)
            drafted.add(token)
            length = min(self.config.max_length, self.config.base_length + self.config.per_match * match)
            if rank:
                length = min(length, self.config.branch_length)
            run = copy_end(ids, start, length, match)
            rates, bins = self._anchored_rates.run(match, len(run))
            bins[0] = ("A", rank, match_bin(match), _similarity_bin(similarity[i]))
            rates[0] = self.table.rate(bins[0])
            paths.append(Path(run, rates, "srsd:anchored", start, bins))
            if len(paths) == self.config.anchored:
                break
        return paths, int(matches.max())

    def _substituted(self, ids: NDArray[np.int64]) -> list[Path]:
        """Class S: places where another token stood in the root's slot."""
        if not self.config.substitutions or len(ids) < 4:
            return []
        last = len(ids) - 1
        similarity = self.similarity(self._slot_layer)[: last - 2].copy()  # j + 2 is at most the root
        similarity[ids[1 : last - 1] == ids[last]] = -1.0  # anchored ones are class A
        count = min(4 * self.config.substitutions, len(similarity))
        near = np.argpartition(-similarity, count - 1)[:count]
        near = near[np.argsort(-similarity[near], kind="stable")]
        paths: list[Path] = []
        drafted: set[int] = set()
        for j in near.tolist():
            token = int(ids[j + 2])
            if token in drafted or similarity[j] <= -1.0:
                continue
            first: Bin = ("S", len(drafted), _similarity_bin(similarity[j]))
            drafted.add(token)
            paths.append(self._branch(ids, j + 2, "S", first, "srsd:substitution"))
            if len(paths) == self.config.substitutions:
                break
        return paths

    def _pointed(self, ids: NDArray[np.int64]) -> list[Path]:
        """Class P: around the place where the last copy broke off."""
        paths = []
        for rank, start in enumerate(self._pointer.places(len(ids), self.config.offsets)):
            first: Bin = ("P", rank, min(self._pointer.gap, 4))
            paths.append(self._branch(ids, start, "P", first, "srsd:pointer"))
        return paths

    def _branch(self, ids: NDArray[np.int64], start: int, kind: str, first: Bin, source: str) -> Path:
        """A short copy from `start` whose first token has bin `first`."""
        run = copy_end(ids, start, self.config.branch_length, 0)
        bins: list[Bin] = [first, *((kind, "on", min(i, FAR)) for i in range(1, len(run)))]
        return Path(run, [self.table.rate(key) for key in bins], source, start, bins)


def _block(depth: float, num_layers: int) -> int:
    """The block whose output stands at this share of the depth: 0.5 of 24 is block 11, the twelfth."""
    return min(max(round(depth * num_layers) - 1, 0), num_layers - 1)


def _similarity_bin(similarity: float) -> int:
    return int(np.searchsorted(SIMILARITY_BINS, similarity))
