"""Auto: SRSD, suffix automaton and token recycling in one tree, the default.

The three look at different things (meaning, text, the target's own runners-up) and hardly overlap, so
their guesses are merged and the budget picks the best of all. *Bridges* join two of them: a recycled
successor of the root, followed by the copy that goes on from where that successor stands in the text.
Own derivation (methods: SRSD, SAM Decoding, Token Recycling).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import Bin, DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option
from echodraft.drafters.srsd import SRSDConfig, SRSDDrafter
from echodraft.drafters.suffix_automaton import SuffixAutomatonConfig, SuffixAutomatonDrafter
from echodraft.drafters.token_recycling import TokenRecyclingConfig, TokenRecyclingDrafter

__all__ = ["AutoConfig", "AutoDrafter"]


@dataclass(frozen=True, slots=True)
class AutoConfig:
    """Options of `auto`."""

    bridges: int = option(4, "recycled successors of the root that are followed by a copy")
    bridge_length: int = option(4, "tokens copied after a bridge")
    recycling_match: int = option(8, "recycle and bridge only while the best match is at most so long")
    srsd: SRSDConfig = field(default_factory=SRSDConfig)
    suffix_automaton: SuffixAutomatonConfig = field(default_factory=SuffixAutomatonConfig)
    token_recycling: TokenRecyclingConfig = field(default_factory=TokenRecyclingConfig)

    def __post_init__(self) -> None:
        at_least(self, bridges=0, bridge_length=1, recycling_match=0)


class AutoDrafter(BaseDrafter[AutoConfig]):
    """The union of three drafters, and bridges between them."""

    name = "auto"
    reference = "srsd + suffix_automaton + token_recycling in one tree"
    Config = AutoConfig

    def __init__(self, config: AutoConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._srsd = SRSDDrafter(config.srsd, context)
        self._suffix = SuffixAutomatonDrafter(config.suffix_automaton, context)
        self._recycling = TokenRecyclingDrafter(config.token_recycling, context)
        self._parts: tuple[SRSDDrafter | SuffixAutomatonDrafter | TokenRecyclingDrafter, ...]
        self._parts = (self._suffix, self._srsd, self._recycling)

    @property
    def needs(self) -> Needs:
        """All that the parts need."""
        needs = Needs()
        for part in self._parts:
            needs = needs | part.needs
        return needs

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Start every part."""
        for part in self._parts:
            part.start(sequence, rows)

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Let every part learn."""
        for part in self._parts:
            part.observe(sequence, tree, rows, result)

    def propose(self, sequence: Sequence) -> list[Path]:
        """All guesses; recycled ones and bridges only where no long match stands."""
        paths = self._suffix.propose(sequence) + self._srsd.propose(sequence)
        if self._suffix.match <= self.config.recycling_match:
            paths += self._bridged(sequence)
            paths += self._recycling.propose(sequence)
        return paths

    def _bridged(self, sequence: Sequence) -> list[Path]:
        """Recycled successors of the root, each with the copy from its most similar occurrence."""
        ids = sequence.ids
        successors = self._recycling.successors(sequence.root)[: self.config.bridges]
        if not successors or len(ids) < 2:
            return []
        similarity = self._srsd.similarity()
        paths = []
        for rank, token in enumerate(successors):
            places = np.flatnonzero(ids[1:-1] == token) + 1  # place p was produced by state p - 1
            if not len(places):
                continue
            place = int(places[np.argmax(similarity[np.maximum(places - 2, 0)])])
            run = ids[place : place + 1 + self.config.bridge_length].tolist()
            bins: list[Bin] = [("bridge", rank), *(("bridge", "on", i) for i in range(1, len(run)))]
            rates = [self.table.rate(key) for key in bins]
            paths.append(Path(run, rates, "bridge", place, bins))
        return paths
