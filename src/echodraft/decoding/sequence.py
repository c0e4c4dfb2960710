"""Sequence: the tokens of one request and how far they have been decided.

Invariant while it runs: tokens 0..n-1 (`committed` = n) have been forwarded and have cache rows; token n
is the *root*: certain, but not yet forwarded. A sequence knows nothing of caches, drafts or text.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.stopping import StopRule

__all__ = ["FinishReason", "Sequence", "Verification"]

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Verification:
    """What one forward decided.

    nodes:         accepted nodes of the draft tree, root first, each the child of the one before; the
                   rows to commit. Empty for the prefill.
    tokens:        tokens decided now: the accepted drafts in order, then the next root. A stop rule cuts
                   them after the token that stopped, so the next root may be missing.
    finish_reason: why the sequence ended, or None if it goes on.
    """

    nodes: tuple[int, ...]
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None = None


class Sequence:
    """One request: prompt ids, decided ids, stop rule. Owned by the decode loop, read by all."""

    def __init__(self, prompt: SequenceOf[int], stop: StopRule) -> None:
        self.prompt_length = len(prompt)
        self.stop = stop
        self.committed = 0
        self.finish_reason: FinishReason | None = "length" if stop.max_new_tokens == 0 else None
        self._length = len(prompt)
        self._buffer = np.empty(len(prompt) + stop.max_new_tokens, dtype=np.int64)
        self._buffer[: len(prompt)] = prompt

    @property
    def ids(self) -> NDArray[np.int64]:
        """Int64 [prompt + decided]: a view, the root last. Do not write to it."""
        return self._buffer[: self._length]

    @property
    def output(self) -> list[int]:
        """Ids decided so far, prompt excluded."""
        tokens: list[int] = self._buffer[self.prompt_length : self._length].tolist()
        return tokens

    @property
    def output_length(self) -> int:
        return self._length - self.prompt_length

    @property
    def root(self) -> int:
        """The token that is decided and not yet forwarded."""
        return int(self._buffer[self._length - 1])

    @property
    def room(self) -> int:
        """How many more tokens may be decided."""
        return self.stop.max_new_tokens - self.output_length

    def commit(self, result: Verification) -> None:
        """Take over what a forward decided. The prefill (no nodes) commits the prompt."""
        self.committed += len(result.nodes) if self.committed else self.prompt_length
        end = self._length + len(result.tokens)
        self._buffer[self._length : end] = result.tokens
        self._length = end
        self.finish_reason = result.finish_reason
