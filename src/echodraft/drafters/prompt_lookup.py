"""Prompt lookup: copy what followed the first earlier occurrence of the last few tokens.

As transformers' `prompt_lookup_num_tokens` has it, for comparison: the longest n-gram first (n from
`max_matching_ngram_size` down to 1), and of its occurrences the *earliest*; ends before an end token.
Source: Saxena, Prompt Lookup Decoding (2023); transformers' PromptLookupCandidateGenerator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echodraft.decoding.sequence import Sequence
from echodraft.decoding.tree import Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option
from echodraft.drafters.copying import CopyRates, cut_at

__all__ = ["PromptLookupConfig", "PromptLookupDrafter"]


@dataclass(frozen=True, slots=True)
class PromptLookupConfig:
    """Options of `prompt_lookup`, named as in transformers."""

    num_tokens: int = option(10, "tokens copied (transformers: prompt_lookup_num_tokens)")
    max_matching_ngram_size: int = option(3, "longest n-gram compared")

    def __post_init__(self) -> None:
        at_least(self, num_tokens=1, max_matching_ngram_size=1)


class PromptLookupDrafter(BaseDrafter[PromptLookupConfig]):
    """A chain copied from the earliest occurrence of the longest n-gram. Keeps no state."""

    name = "prompt_lookup"
    reference = "Prompt Lookup Decoding (2023), as transformers has it"
    Config = PromptLookupConfig

    def __init__(self, config: PromptLookupConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._rates = CopyRates(self.table, self.name)

    def propose(self, sequence: Sequence) -> list[Path]:
        """One chain, or nothing."""
        ids = sequence.ids
        for n in range(min(self.config.max_matching_ngram_size, len(ids) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)
            found = (windows == ids[-n:]).all(axis=1)
            first = int(found.argmax())
            if found[first]:
                start = first + n
                run = cut_at(ids[start : start + self.config.num_tokens].tolist(), self.info.end_tokens)
                rates, bins = self._rates.run(n, len(run))
                return [Path(run, rates, self.name, start, bins)] if run else []
        return []
