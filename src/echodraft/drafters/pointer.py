"""Copy pointer: where in the context the last copy stood, carried across an edit.

When a copied run breaks off, the text has been edited: a token was replaced, inserted or left out. The
copy usually goes on nearby. The pointer remembers the last position that was copied correctly and how
many tokens came since, and says of any place how it lies to where the copy should go on. Own derivation.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.tree import Path

__all__ = ["CopyPointer"]

MAX_GAP = 8  # tokens since the last copied one after which the place is forgotten
BEFORE, AFTER = 16, 32  # how far around it a place still has a cell of its own


class CopyPointer:
    """Last copied position and the number of tokens decided since (`gap`)."""

    GAPS: ClassVar[int] = 4  # gaps told apart: 0, 1, 2, more
    OFFSETS: ClassVar[int] = 8

    def __init__(self) -> None:
        self._position = -1
        self.gap = 0

    def advance(self, proposed: SequenceOf[Path], tokens: SequenceOf[int]) -> None:
        """Follow the proposed copy that agrees longest with the decided `tokens` (the first of equals)."""
        best, place = 0, -1
        for path in proposed:
            right = _agreement(path.tokens, tokens) if path.origin is not None else 0
            if path.origin is not None and right > best:
                best, place = right, path.origin + right - 1
        if best:
            self._position, self.gap = place, len(tokens) - best
        else:
            self.gap += len(tokens)

    @property
    def active(self) -> bool:
        """Whether a copy ended a few tokens ago at most."""
        return self._position >= 0 and self.gap <= MAX_GAP

    def nearby(self, length: int) -> range:
        """Positions below `length` where the copy may well go on; empty if the pointer is forgotten."""
        if not self.active:
            return range(0)
        following = self._position + 1
        return range(max(following - 1, 2), min(following + self.gap + 4, length))

    def cells(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Int64 in [-1, GAPS * OFFSETS): how each position lies to the pointer, by gap; -1: unrelated.

        With g tokens since the copied one, the copy goes on at +g if as many were replaced, at +0 if
        they were inserted, further on if some were left out.
        """
        cells = np.full(len(positions), -1, dtype=np.int64)
        if not self.active:
            return cells
        gap = self.gap
        offsets = positions - (self._position + 1)
        cells[(offsets >= -BEFORE) & (offsets < -1)] = 0
        cells[offsets == -1] = 1
        cells[(offsets > 0) & (offsets < gap)] = 2
        cells[offsets == 0] = 3
        cells[offsets == gap] = 4
        cells[offsets == gap + 1] = 5
        cells[(offsets == gap + 2) | (offsets == gap + 3)] = 6
        cells[(offsets > gap + 3) & (offsets <= gap + AFTER)] = 7
        cells[cells >= 0] += min(gap, self.GAPS - 1) * self.OFFSETS
        return cells


def _agreement(drafted: SequenceOf[int], tokens: SequenceOf[int]) -> int:
    count = 0
    for a, b in zip(drafted, tokens, strict=False):
        if a != b:
            break
        count += 1
    return count
