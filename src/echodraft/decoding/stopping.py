"""Stopping: when a sequence ends, decided token by token.

The verifier asks after every single token, never after a step or a block: nothing that follows an end
token or exceeds a limit is ever kept, however many tokens one forward decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["StopRule"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """End tokens and length limit of one request.

    end_tokens:     ids that end the output and stay in it (the target's EOS list and the caller's).
    max_new_tokens: the most tokens to decide, the context limit already taken into account.
    """

    end_tokens: frozenset[int]
    max_new_tokens: int

    def after(self, token: int, count: int) -> Literal["stop", "length"] | None:
        """Why the output ends with `token` as its `count`-th token (counted from 1), or None."""
        if token in self.end_tokens:
            return "stop"
        return "length" if count >= self.max_new_tokens else None

    def cut(self, tokens: Iterable[int], decided: int) -> tuple[list[int], Literal["stop", "length"] | None]:
        """Keep `tokens` up to the first one that ends an output that has `decided` tokens already."""
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            if reason := self.after(token, decided + len(kept)):
                return kept, reason
        return kept, None
