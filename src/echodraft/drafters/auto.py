"""Auto: SRSD and token recycling in one tree, the default.

The two look at different things, the context and the target's own runners-up, and hardly overlap. The
copy model weighs them together: a recycled successor of the root that also stands in the text is copied
on from its most fitting place there (a *bridge*), and one found nowhere still gets its share. The suffix
automaton needs no part of its own: the place it would copy from is always among SRSD's, with the length
of its match. Own derivation (methods: SRSD, SAM Decoding, Token Recycling).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from echodraft.decoding.interfaces import Needs, Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext
from echodraft.drafters.copy_model import CopyModel
from echodraft.drafters.srsd import SRSDConfig, SRSDDrafter, first_bin
from echodraft.drafters.token_recycling import TokenRecyclingConfig, TokenRecyclingDrafter

__all__ = ["AutoConfig", "AutoDrafter"]


@dataclass(frozen=True, slots=True)
class AutoConfig:
    """Options of `auto`: those of its two parts."""

    srsd: SRSDConfig = field(default_factory=SRSDConfig)
    token_recycling: TokenRecyclingConfig = field(default_factory=TokenRecyclingConfig)


class AutoDrafter(BaseDrafter[AutoConfig]):
    """Copies and recycled tokens, weighed by one copy model."""

    name = "auto"
    reference = "srsd + token_recycling in one tree; suffix matches included"
    Config = AutoConfig

    def __init__(self, config: AutoConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._srsd = SRSDDrafter(config.srsd, context, CopyModel(context.weights[self.name]))
        self._recycling = TokenRecyclingDrafter(config.token_recycling, context)

    @property
    def needs(self) -> Needs:
        """All that the parts need."""
        return self._srsd.needs | self._recycling.needs

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Start both parts."""
        self._srsd.start(sequence, rows)
        self._recycling.start(sequence, rows)

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Let both parts learn."""
        self._srsd.observe(sequence, tree, rows, result)
        self._recycling.observe(sequence, tree, rows, result)

    def propose(self, sequence: Sequence) -> list[Path]:
        """Copies, then recycled paths; first tokens have the copy model's rates."""
        copies, tokens = self._srsd.draft(sequence, self._recycling.successors(sequence.root))
        scored = {path.tokens[0] for path in copies}
        paths = copies
        kind = "filler while copying" if self._srsd.copying else "filler"
        for path in self._recycling.recycle(sequence.root, kind):
            token = path.tokens[0]
            first = first_bin(tokens[token])
            rates = [self.table.rate(first), *path.rates[1:]]
            bins = [None if token in scored else first, *path.bins[1:]]
            paths.append(replace(path, rates=rates, bins=bins))
            scored.add(token)
        return paths
