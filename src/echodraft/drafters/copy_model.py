"""Copy model: how likely the text goes on as it did at each earlier place.

A *place* q is a position whose token may come next: drafting from it copies ids[q], ids[q + 1], ...
Every place gets a score, the sum of the weights of what is known of it: how long the text before it
agrees, how alike the hidden states are, how far it is from where the last copy broke off, whether the
target has lately thought of its token. A softmax over all places and over "none of them" turns scores
into probabilities, so that guesses exclude each other and many weak signs for one token add up. The
few dozen weights are a conditional logit fitted on transcripts (tools/fit_priors.py). Own derivation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from echodraft.drafters.pointer import CopyPointer

__all__ = ["GROUPS", "CopyModel", "Places", "Weights", "load_weights"]

MATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 20, 31)  # upper ends of the bins of match lengths; then longer
RANKS = 8  # recycled successors told apart
NEW_AFTER = (1, 2, 4, 8)  # longest matches that make a token found nowhere less likely

# Weights by name, with their shape; features are in the same order.
GROUPS: dict[str, tuple[int, ...]] = {
    "match": (len(MATCHES) + 1,),  # anchored places: length of the match
    "anchored_similarity": (1,),
    "other": (1,),  # places whose predecessor is not the root
    "other_similarity": (1,),
    "pointer": (CopyPointer.GAPS, CopyPointer.OFFSETS),
    "distance": (1,),
    "recycled": (RANKS,),  # the place's token is a recycled successor of this rank
    "new": (RANKS,),  # a recycled successor by itself, wherever it stands
    "new_after": (len(NEW_AFTER),),
    "new_while_copying": (1,),  # the same, when a copy broke off a few tokens ago
}
SIZES = {name: int(np.prod(shape)) for name, shape in GROUPS.items()}
STARTS = dict(zip(SIZES, np.cumsum([0, *SIZES.values()]).tolist(), strict=False))
FEATURES = sum(SIZES.values())

Weights = Mapping[str, SequenceOf[float]]


def load_weights() -> dict[str, Weights]:
    """Drafter name -> weights by group, as shipped in `priors.json`."""
    text = resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")
    weights: dict[str, Weights] = json.loads(text)["weights"]
    return weights


@dataclass(frozen=True, slots=True)
class Places:
    """Candidate places and what is known of them; arrays of one length k.

    positions:  int64, where the copy would start.
    tokens:     int64, the token there.
    anchored:   bool, whether the root stands before it.
    matches:    int64, length of the match that ends with the root (0 where not anchored).
    similarity: float32, of the state that produced the place's predecessor to the one of the root.
    length:     tokens in the context.
    """

    positions: NDArray[np.int64]
    tokens: NDArray[np.int64]
    anchored: NDArray[np.bool_]
    matches: NDArray[np.int64]
    similarity: NDArray[np.float32]
    length: int


class CopyModel:
    """Scores places. `weights` as in GROUPS; a group that is missing counts nothing."""

    def __init__(self, weights: Weights) -> None:
        self.weights = np.zeros(FEATURES, dtype=np.float32)
        for name, values in weights.items():
            self.weights[STARTS[name] : STARTS[name] + SIZES[name]] = values

    def probabilities(
        self, places: Places, pointer: CopyPointer, recycled: SequenceOf[int]
    ) -> tuple[NDArray[np.float32], dict[int, float]]:
        """Probability of each place, and of each token to come next (places and recycled together)."""
        scores = self.features(places, pointer, recycled) @ self.weights
        parts = np.exp(np.minimum(scores, 30.0))
        parts /= 1.0 + parts.sum()  # the 1 stands for a token that is none of these
        tokens: dict[int, float] = {}
        for token, part in zip([*places.tokens.tolist(), *recycled], parts.tolist(), strict=True):
            tokens[token] = tokens.get(token, 0.0) + part
        return parts[: len(places.tokens)], tokens

    def features(
        self, places: Places, pointer: CopyPointer, recycled: SequenceOf[int]
    ) -> NDArray[np.float32]:
        """Float32 [places + recycled, FEATURES]."""
        k = len(places.tokens)
        rows = np.zeros((k + len(recycled), FEATURES), dtype=np.float32)
        every, anchored, other = np.arange(k), places.anchored, ~places.anchored
        bins = np.searchsorted(MATCHES, places.matches)
        rows[every[anchored], STARTS["match"] + bins[anchored]] = 1.0
        rows[every[anchored], STARTS["anchored_similarity"]] = places.similarity[anchored]
        rows[every[other], STARTS["other"]] = 1.0
        rows[every[other], STARTS["other_similarity"]] = places.similarity[other]
        cells = pointer.cells(places.positions)
        rows[every[cells >= 0], STARTS["pointer"] + cells[cells >= 0]] = 1.0
        rows[:k, STARTS["distance"]] = np.log(places.length - places.positions) / 8.0
        longest = int(places.matches.max(initial=0))
        for rank, token in enumerate(recycled[:RANKS]):
            rows[:k, STARTS["recycled"] + rank] = places.tokens == token
            rows[k + rank, STARTS["new"] + rank] = 1.0
        rows[k:, STARTS["new_after"] : STARTS["new_after"] + len(NEW_AFTER)] = longest >= np.array(NEW_AFTER)
        rows[k:, STARTS["new_while_copying"]] = pointer.active
        return rows
