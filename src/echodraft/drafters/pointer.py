"""Copy pointer: where in the context the last copy stood, carried across an edit.

When a copied run breaks off, the text has been edited: a token was replaced, inserted or left out. The
copy usually goes on nearby. The pointer remembers the last position that was copied correctly and how
many tokens came since, and lists the places where the copy may go on. Own derivation.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from echodraft.decoding.tree import Path

__all__ = ["CopyPointer"]

MAX_GAP = 8  # tokens since the last copied one after which the place is forgotten


class CopyPointer:
    """Last copied position and the number of tokens decided since (`gap`)."""

    def __init__(self) -> None:
        self._position = -1
        self.gap = 0

    def advance(self, proposed: SequenceOf[Path], tokens: SequenceOf[int]) -> None:
        """Follow the proposed copy that agrees longest with the decided `tokens` (the first of equals)."""
        best, place = 0, -1
        for path in proposed:
            if path.origin is None:
                continue
            right = _agreement(path.tokens, tokens)
            if right > best:
                best, place = right, path.origin + right - 1
        if best:
            self._position, self.gap = place, len(tokens) - best
        else:
            self.gap += len(tokens)

    def places(self, length: int, count: int) -> list[int]:
        """Up to `count` positions below `length` where the copy may go on, likeliest first.

        With g tokens since the copied one: all of them replaced as many (+g), inserted (+0), then
        neighbours that allow for a token left out or put in besides.
        """
        if self._position < 0 or not 0 < self.gap <= MAX_GAP:
            return []
        following = self._position + 1
        starts = dict.fromkeys(following + offset for offset in (self.gap, 0, self.gap + 1, 1, 2, 3))
        return [start for start in starts if start < length][:count]


def _agreement(drafted: SequenceOf[int], tokens: SequenceOf[int]) -> int:
    count = 0
    for a, b in zip(drafted, tokens, strict=False):
        if a != b:
            break
        count += 1
    return count
