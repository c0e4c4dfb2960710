"""Slow, obvious twins of what the drafters compute fast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def longest_earlier_match(tokens: Sequence[int], longest: int = 1 << 30) -> tuple[int, int]:
    """(length, end) of the longest suffix that also ends earlier; of equals the latest; (0, -1) if none."""
    best, best_end = 0, -1
    for end in range(len(tokens) - 1):
        length = common_suffix_slow(tokens, end, len(tokens) - 1, longest)
        if length and length >= best:
            best, best_end = length, end
    return best, best_end


def common_suffix_slow(tokens: Sequence[int], end: int, last: int, cap: int) -> int:
    """How many tokens agree walking back from `end` and from `last`."""
    length = 0
    while length < cap and end - length >= 0 and tokens[end - length] == tokens[last - length]:
        length += 1
    return length


def similarities_slow(rows: Sequence[Sequence[float]], fitted: int, sinks: int, clip: float) -> list[float]:
    """Cosine of the last row with each, z-scored by rows `sinks`..`fitted`; -1 where none."""
    body = rows[sinks:fitted] if fitted > 2 * sinks else rows[:fitted]
    width = len(rows[0])
    means = [sum(row[d] for row in body) / len(body) for d in range(width)]
    deviations = [
        math.sqrt(sum((row[d] - means[d]) ** 2 for row in body) / len(body)) + 1e-6 for d in range(width)
    ]
    keys = []
    for row in rows:
        scored = [max(-clip, min(clip, (row[d] - means[d]) / deviations[d])) for d in range(width)]
        norm = math.sqrt(sum(value * value for value in scored)) or 1.0
        keys.append([value / norm for value in scored])
    result = [sum(a * b for a, b in zip(key, keys[-1], strict=True)) for key in keys]
    return [-1.0 if i < sinks or i == len(rows) - 1 else value for i, value in enumerate(result)]


def recycled_nodes_slow(
    successors: Mapping[int, Sequence[int]], root: int, rates: Sequence[Sequence[float]]
) -> dict[tuple[int, ...], float]:
    """Value of every node reachable in the table, by the tokens on its way: the product of the rates."""
    found: dict[tuple[int, ...], float] = {}

    def grow(path: tuple[int, ...], value: float) -> None:
        if len(path) == len(rates):
            return
        for rank, token in enumerate(successors.get(path[-1] if path else root, [])):
            found[(*path, token)] = value * rates[len(path)][rank]
            grow((*path, token), found[(*path, token)])

    grow((), 1.0)
    return found
