"""Slow twins of what touches rows: visibility, cache gathering, top ids, stopping."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.trees import ancestor_mask_slow


def visible_slow(
    committed: int, depths: Sequence[int], parents: Sequence[int] | None, window: int | None
) -> list[list[bool]]:
    """Which of the committed and new rows each new row sees; a window counts positions, not rows."""
    ancestors = ancestor_mask_slow(range(-1, len(depths) - 1) if parents is None else parents)
    positions = [*range(committed), *(committed + depth for depth in depths)]
    seen = []
    for row, depth in enumerate(depths):
        here = committed + depth
        line = []
        for key, there in enumerate(positions):
            related = key < committed or ancestors[row][key - committed]
            near = window is None or here - there < window
            line.append(related and near)
        seen.append(line)
    return seen


def gather_slow(rows: Sequence[object], committed: int, nodes: Sequence[int]) -> list[object]:
    """The committed rows, then those of `nodes`, one after the other."""
    return [*rows[:committed], *(rows[committed + node] for node in nodes)]


def top_ids_slow(logits: Sequence[float], k: int) -> list[int]:
    """The k ids of the highest logits by sorting all of them; the lower id first on a tie."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:k]


def stop_slow(tokens: Sequence[int], end: set[int], limit: int) -> tuple[list[int], str | None]:
    """Plain decoding of a fixed text: token by token until an end token or the limit."""
    out: list[int] = []
    if limit == 0:
        return out, "length"
    for token in tokens:
        out.append(token)
        if token in end:
            return out, "stop"
        if len(out) == limit:
            return out, "length"
    return out, None
