"""Copying from the context: what every retrieval drafter shares.

A draft that copies a run of earlier text is trusted the more the longer the text before it agrees. The
*match length* m is the number of equal tokens that end at the root and at the copied run's predecessor;
each token that is accepted makes the match one longer. So the rate of token i of a copy is that of a
match of length m + i, and one table over match lengths serves all depths.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.tree import Bin

__all__ = ["LONGEST_MATCH", "CopyRates", "common_suffix", "copy_end", "match_bin"]

LONGEST_MATCH = 32  # matches longer than this are equally good (methods/replay-findings.md)


def match_bin(length: int) -> int:
    """Bin of a match length: single up to 8, then ever wider."""
    if length <= 8:
        return length
    return 10 if length <= 12 else 16 if length <= 20 else 24 if length <= 31 else LONGEST_MATCH


MATCH_BINS = tuple(match_bin(length) for length in range(LONGEST_MATCH + 1))


class CopyRates:
    """Rates and bins of copied tokens by match length, for one kind of copy."""

    def __init__(self, table: AcceptanceTable, kind: str) -> None:
        self._table = table
        self._bins: tuple[Bin, ...] = tuple((kind, "match", length) for length in MATCH_BINS)

    def run(self, match: int, length: int) -> tuple[list[float], list[Bin]]:
        """Rates and bins of `length` tokens copied after a match of `match` tokens."""
        last = LONGEST_MATCH
        bins = [self._bins[min(match + i, last)] for i in range(min(length, last + 1))]
        bins += [self._bins[last]] * (length - len(bins))
        known: dict[Bin, float] = {}
        for key in bins:
            if key not in known:
                known[key] = self._table.rate(key)
        return [known[key] for key in bins], bins


def common_suffix(
    ids: NDArray[np.int64], ends: NDArray[np.int64], last: int, cap: int = LONGEST_MATCH
) -> NDArray[np.int64]:
    """How many tokens agree, walking back from each of `ends` and from `last` together.

    ids:  int64 [T]; ends: int64 [k], each below `last`.
    returns int64 [k], at most `cap`.
    """
    lengths = np.zeros(len(ends), dtype=np.int64)
    alive = np.arange(len(ends))
    for back in range(min(cap, last + 1)):
        positions = ends[alive] - back
        alive = alive[(positions >= 0) & (ids[np.maximum(positions, 0)] == ids[last - back])]
        if not len(alive):
            break
        lengths[alive] = back + 1
    return lengths


def copy_end(ids: NDArray[np.int64], start: int, length: int, match: int) -> list[int]:
    """Up to `length` tokens copied from `start`; a proven loop goes on past the end of the context.

    The copy may end with the root itself. When the match covers a whole period (the distance between
    the copy and the present), the text repeats itself and so does the draft.
    """
    run: list[int] = ids[start : start + length].tolist()
    period = len(ids) - start
    if len(run) < length and 0 < period <= match:
        while len(run) < length:
            run.append(run[-period])
    return run


def cut_at(run: list[int], stops: SequenceOf[int] | frozenset[int]) -> list[int]:
    """`run` up to the first token of `stops`, that token excluded."""
    for i, token in enumerate(run):
        if token in stops:
            return run[:i]
    return run
