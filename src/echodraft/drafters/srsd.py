"""SRSD: the target's own hidden states as an index of its context.

A state of a later middle layer says what the text is about to do better than the last few tokens do. At
every step the state that produced the root, h[n-1], is compared with all earlier ones; where they are
alike, what followed then is drafted now. Three kinds of places compete in one copy model:

- anchored: the root stood there too. Of many occurrences of a common token the fitting one is copied.
- substitution: another token stood in the root's slot (a renamed or corrected word). Text matching
  cannot find these at all.
- pointer: near where the last copy broke off, carried across the edit.

Surprise: the query is h[n-1], never h[n] (the root has no state yet), and key j belongs to the slot j+1:
if j is retrieved, the draft starts at j+2. Source: SRSD (Findings of EMNLP 2026), whose parameters are
not public; places, copy model and calibration are our specification (docs/methods/srsd.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option
from echodraft.drafters.copy_model import CopyModel, Places
from echodraft.drafters.copying import CopyRates, common_suffix, copy_end
from echodraft.drafters.pointer import CopyPointer
from echodraft.drafters.state_index import StateIndex

__all__ = ["SRSDConfig", "SRSDDrafter", "first_bin", "nominal_rate"]

UNLIKELY = 0.005  # places whose token is less likely are not drafted
PROMISING = 0.1  # first tokens at least so likely get a draft of full length
LOGIT_BINS = 1.5  # bins of a first token's probability, per unit of its logit
MIDDLE = 8.0  # the bin of even odds


@dataclass(frozen=True, slots=True)
class SRSDConfig:
    """Options of `srsd`."""

    layer_depth: float = option(
        0.75, "layer whose states are compared, as a share of depth (0.5: the middle)"
    )
    substitutions: int = option(8, "most similar places considered whose predecessor is not the root")
    branches: int = option(12, "most different first tokens drafted")
    max_length: int = option(64, "longest draft, in tokens")
    branch_length: int = option(24, "longest draft behind an unlikely first token")

    def __post_init__(self) -> None:
        at_least(self, layer_depth=0, substitutions=0, branches=1, max_length=1, branch_length=1)


class SRSDDrafter(BaseDrafter[SRSDConfig]):
    """Copies of what followed similar states. Keeps one index row per committed token."""

    name = "srsd"
    reference = "SRSD (Findings of EMNLP 2026), own specification"
    Config = SRSDConfig

    def __init__(self, config: SRSDConfig, context: DraftContext, model: CopyModel | None = None) -> None:
        super().__init__(config, context)
        layers = self.info.num_layers
        self._layer = min(max(round(config.layer_depth * layers) - 1, 0), layers - 1)
        self._index = StateIndex()
        self._model = model or CopyModel(context.weights[self.name])
        self._rates = {True: CopyRates(self.table, "anchored"), False: CopyRates(self.table, "shifted")}
        self._pointer = CopyPointer()
        self._proposed: list[Path] = []

    @property
    def needs(self) -> Needs:
        """States of one layer."""
        return Needs(layers=frozenset({self._layer}))

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Index the prompt."""
        self._index.append(rows.states[self._layer])

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Index the committed rows, and see which copy was followed how far."""
        self._index.append(rows.states[self._layer][list(result.nodes)])
        self._pointer.advance(self._proposed, result.tokens)
        self._proposed = []

    @property
    def copying(self) -> bool:
        """Whether a copy was followed until a few tokens ago."""
        return self._pointer.active

    def propose(self, sequence: Sequence) -> list[Path]:
        """One copy for each likely first token, likeliest first."""
        return self.draft(sequence, [])[0]

    def draft(self, sequence: Sequence, recycled: SequenceOf[int]) -> tuple[list[Path], dict[int, float]]:
        """Paths as `propose`, and the probability of every first token looked at.

        recycled: tokens that are likely for other reasons, best first (`auto`).
        """
        places = self._places(sequence.ids, recycled)
        likely, tokens = self._model.probabilities(places, self._pointer, recycled)
        paths: list[Path] = []
        drafted: set[int] = set()
        for i in np.argsort(-likely, kind="stable").tolist():
            token = int(places.tokens[i])
            if token in drafted or tokens[token] < UNLIKELY:
                continue
            drafted.add(token)
            paths.append(self._copy(sequence.ids, places, i, tokens[token]))
            if len(drafted) == self.config.branches:
                break
        self._proposed = paths
        return paths, tokens

    def _places(self, ids: NDArray[np.int64], recycled: SequenceOf[int]) -> Places:
        """All anchored places, the most similar others, those near the pointer and of recycled tokens."""
        last = len(ids) - 1
        if last < 2:
            empty = np.zeros(0, dtype=np.int64)
            return Places(empty, empty, empty > 0, empty, empty.astype(np.float32), last + 1)
        similarity = self._index.similarity()[: last - 1]  # of key j, place j + 2; the last place is the root
        following = ids[2:]
        anchored = ids[1:last] == ids[last]
        chosen = anchored.copy()
        count = min(self.config.substitutions, len(similarity))
        if count:
            others = np.where(anchored, -np.inf, similarity)
            chosen[np.argpartition(-others, count - 1)[:count]] = True
        near = self._pointer.nearby(last + 1)
        chosen[max(near.start - 2, 0) : max(near.stop - 2, 0)] = True
        for token in recycled:
            at = np.flatnonzero(following == token)
            if len(at):
                chosen[at[similarity[at].argmax()]] = True
        keys = np.flatnonzero(chosen)
        matches = np.zeros(len(keys), dtype=np.int64)
        matches[anchored[keys]] = common_suffix(ids, keys[anchored[keys]] + 1, last)
        return Places(keys + 2, following[keys], anchored[keys], matches, similarity[keys], last + 1)

    def _copy(self, ids: NDArray[np.int64], places: Places, i: int, likely: float) -> Path:
        """The copy from place i, whose first token comes next with probability `likely`."""
        start, match, anchored = int(places.positions[i]), int(places.matches[i]), bool(places.anchored[i])
        length = self.config.max_length
        if likely < PROMISING:
            length = min(length, self.config.branch_length)
        run = copy_end(ids, start, length, match)
        rates, bins = self._rates[anchored].run(match, len(run))
        bins[0] = first_bin(likely)
        rates[0] = self.table.rate(bins[0])
        near = start in self._pointer.nearby(len(ids))
        kind = "anchored" if anchored else "pointer" if near else "substitution"
        return Path(run, rates, f"{self.name}:{kind}", start, bins)


def first_bin(likely: float) -> tuple[str, int]:
    """The bin of a first token by its probability: the copy model is calibrated per sequence too."""
    logit = math.log(likely / max(1.0 - likely, 1e-9))
    return ("first", int(min(max(LOGIT_BINS * logit + MIDDLE, 0.0), 18.0)))


def nominal_rate(key: tuple[str, int]) -> float:
    """The probability that a bin of `first_bin` stands for."""
    return 1.0 / (1.0 + math.exp(-(key[1] + 0.5 - MIDDLE) / LOGIT_BINS))
