"""Auto: SRSD, suffix automaton and token recycling in one tree, the default.

They look at different things, meaning, text and the target's own runners-up. The copy model weighs the
first tokens of all of them together: a recycled successor of the root that also stands in the text is
copied on from its most fitting place there (a *bridge*), one found nowhere still gets its share, and the
place the suffix automaton copies from is always among SRSD's, with the length of its match. What the
automaton adds is that the longest match is followed to its end even where another place with the same
next token fits better. Own derivation (methods: SRSD, SAM Decoding, Token Recycling).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext
from echodraft.drafters.copy_model import CopyModel
from echodraft.drafters.srsd import SRSDConfig, SRSDDrafter, first_bin
from echodraft.drafters.suffix_automaton import SuffixAutomatonConfig, SuffixAutomatonDrafter
from echodraft.drafters.token_recycling import TokenRecyclingConfig, TokenRecyclingDrafter

__all__ = ["AutoConfig", "AutoDrafter"]


@dataclass(frozen=True, slots=True)
class AutoConfig:
    """Options of `auto`: those of its parts."""

    srsd: SRSDConfig = field(default_factory=SRSDConfig)
    suffix_automaton: SuffixAutomatonConfig = field(default_factory=SuffixAutomatonConfig)
    token_recycling: TokenRecyclingConfig = field(default_factory=TokenRecyclingConfig)


class AutoDrafter(BaseDrafter[AutoConfig]):
    """Copies and recycled tokens, their first tokens weighed by one copy model."""

    name = "auto"
    reference = "srsd + suffix_automaton + token_recycling in one tree"
    Config = AutoConfig

    def __init__(self, config: AutoConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._srsd = SRSDDrafter(config.srsd, context, CopyModel(context.weights[self.name]))
        self._suffix = SuffixAutomatonDrafter(config.suffix_automaton, context)
        self._recycling = TokenRecyclingDrafter(config.token_recycling, context)
        self._parts: tuple[BaseDrafter[Any], ...] = (self._srsd, self._suffix, self._recycling)

    @property
    def needs(self) -> Needs:
        """All that the parts need."""
        return reduce(or_, (part.needs for part in self._parts))

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Start all parts."""
        for part in self._parts:
            part.start(sequence, rows)

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Let all parts learn."""
        for part in self._parts:
            part.observe(sequence, tree, rows, result)

    def propose(self, sequence: Sequence) -> list[Path]:
        """SRSD's copies, then the other parts' paths; all first tokens have the copy model's rates."""
        paths, likely = self._srsd.draft(sequence, self._recycling.successors(sequence.root))
        scored = {path.tokens[0] for path in paths}
        kind = "filler while copying" if self._srsd.copying else "filler"
        others = self._suffix.propose(sequence) + self._recycling.recycle(sequence.root, kind)
        return paths + [self._weighed(path, likely, scored) for path in others if path.tokens[0] in likely]

    def _weighed(self, path: Path, likely: Mapping[int, float], scored: set[int]) -> Path:
        """The path with the copy model's rate for its first token, which is scored once only."""
        token = path.tokens[0]
        first = first_bin(likely[token])
        bins = [None if token in scored else first, *path.bins[1:]]
        scored.add(token)
        return replace(path, rates=[self.table.rate(first), *path.rates[1:]], bins=bins)
