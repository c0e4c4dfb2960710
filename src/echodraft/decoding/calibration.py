"""Calibration: how often tokens of a kind have been accepted.

Every drafted token belongs to a *bin* (source, match length, rank, ...). The table counts how often the
tokens of each bin were right, given that those before them on their path were, and so turns features
into probabilities. It starts from shipped priors (fitted by replay on the tune half of real transcripts,
`priors.json`) and learns from every proposal, also from those that were not verified (*shadow scoring*):
what was emitted afterwards tells whether they would have been right, so it learns at B = 0 as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echodraft.decoding.tree import Bin, Path

__all__ = ["AcceptanceTable"]

PRIOR_TRIALS = 24.0  # a prior weighs as much as so many observations of this sequence
UNKNOWN = 0.3  # acceptance of a bin without a prior: that of drafted tokens on general traffic
PENDING = 64  # paths still undecided that are remembered, newest first


class AcceptanceTable:
    """Acceptance rate per bin; one table per sequence, shared by its drafters.

    priors: bin -> acceptance rate in (0, 1).
    """

    def __init__(self, priors: Mapping[Bin, float] | None = None) -> None:
        self._priors = priors or {}
        self._counts: dict[Bin, list[float]] = {}  # [accepted, trials], the prior included
        self._pending: list[tuple[Path, int]] = []

    def rate(self, key: Bin) -> float:
        """Estimated probability that a token of this bin is accepted, given its predecessors were."""
        counts = self._counts.get(key)
        if counts is None:
            return self._prior(key)
        return counts[0] / counts[1]

    def observe(self, paths: Sequence[Path], emitted: Sequence[int]) -> None:
        """Score what was proposed after the last root against the tokens that followed it.

        paths:   all proposals of this step, verified or not (none if drafting was skipped).
        emitted: tokens decided by this step: those that come right after the root.
        """
        alive: list[tuple[Path, int]] = []
        for path, start in [*self._pending, *((path, 0) for path in paths)]:
            if self._score(path, start, emitted):
                alive.append((path, start + len(emitted)))
        self._pending = alive[-PENDING:]

    def _prior(self, key: Bin) -> float:
        """The prior of a bin, or of the nearest wider one: bins go from wide to narrow."""
        for end in range(len(key), 0, -1):
            if key[:end] in self._priors:
                return self._priors[key[:end]]
        return UNKNOWN

    def _score(self, path: Path, start: int, emitted: Sequence[int]) -> bool:
        """Score path.tokens[start:] against `emitted`; true if it is right so far and goes on."""
        for i, token in enumerate(emitted, start):
            if i >= len(path.bins):
                return False
            key = path.bins[i]
            right = path.tokens[i] == token
            if key is not None:
                counts = self._counts.get(key)
                if counts is None:
                    counts = self._counts[key] = [self._prior(key) * PRIOR_TRIALS, PRIOR_TRIALS]
                counts[0] += right
                counts[1] += 1.0
            if not right:
                return False
        return start + len(emitted) < len(path.tokens)
