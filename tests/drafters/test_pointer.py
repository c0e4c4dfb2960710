"""The copy pointer: what it follows and what it says of places."""

from __future__ import annotations

import numpy as np

from echodraft.decoding.tree import Path
from echodraft.drafters.pointer import MAX_GAP, CopyPointer


def path(origin, tokens):
    return Path(tokens, [0.5] * len(tokens), "a", origin)


def offsets(pointer, following):
    """Cells of the places around where the copy should go on."""
    return pointer.cells(np.arange(following - 2, following + 6)).tolist()


def test_it_follows_the_copy_that_agrees_longest():
    pointer = CopyPointer()
    pointer.advance([path(10, [1, 2, 9]), path(40, [1, 2, 3, 8])], [1, 2, 3, 4, 5])
    assert pointer.gap == 2
    assert pointer.nearby(100) == range(42, 49)  # 42 was copied last, 43 follows it


def test_after_a_copy_without_an_edit_the_next_position_is_expected():
    pointer = CopyPointer()
    pointer.advance([path(10, [1, 2])], [1, 2])
    assert pointer.gap == 0
    assert offsets(pointer, 12) == [0, 1, 4, 5, 6, 6, 7, 7]


def test_an_edit_moves_what_is_expected():
    pointer = CopyPointer()
    pointer.advance([path(10, [1, 2, 3])], [1, 2, 7])  # one replaced: +1 likeliest, inserted: +0
    assert pointer.gap == 1
    row = CopyPointer.OFFSETS
    assert offsets(pointer, 12) == [row + cell for cell in (0, 1, 3, 4, 5, 6, 6, 7)]


def test_paths_that_are_no_copies_are_not_followed():
    pointer = CopyPointer()
    pointer.advance([Path([1, 2], [0.5, 0.5], "a")], [1, 2])
    assert pointer.nearby(100) == range(0)


def test_it_is_forgotten_after_a_while_and_says_nothing_before_a_copy():
    pointer = CopyPointer()
    assert set(offsets(pointer, 5)) == {-1}
    pointer.advance([path(10, [1])], [1])
    pointer.advance([], [5] * MAX_GAP)
    assert pointer.nearby(100)
    pointer.advance([], [5])
    assert pointer.nearby(100) == range(0)
    assert set(offsets(pointer, 11)) == {-1}


def test_places_beyond_the_context_are_not_offered():
    pointer = CopyPointer()
    pointer.advance([path(10, [1, 2])], [1, 2, 7])
    assert pointer.nearby(13) == range(11, 13)
