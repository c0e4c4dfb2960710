"""Drafted against plain decoding: the same engine, the same prompt, the same run.

For a fair clock the model is warmed up and the latency curve known before either is timed. Both times
include the prefill.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echodraft.engine import Engine, Result

__all__ = ["Comparison", "compare", "plain_options", "warm_up"]

WARM_UP_TOKENS = 512  # of the prompt: enough to set up threads and kernels


@dataclass(frozen=True, slots=True)
class Comparison:
    """How drafted decoding did beside plain decoding.

    seconds:          of plain decoding.
    speedup:          plain seconds per drafted second; None if nothing was generated.
    first_difference: None, or the first position where the ids differ, with both ids (None: ended).
    """

    seconds: float
    speedup: float | None
    first_difference: dict[str, int | None] | None

    @property
    def identical(self) -> bool:
        """Whether the ids are the same, and as many."""
        return self.first_difference is None

    def as_dict(self) -> dict[str, Any]:
        """The entry `plain` of `echodraft generate --compare --json`."""
        return {
            "seconds": self.seconds,
            "identical": self.identical,
            "speedup": self.speedup,
            "first_difference": self.first_difference,
        }

    def __str__(self) -> str:
        if (difference := self.first_difference) is not None:
            return (
                f"ids differ at position {difference['position']}: "
                f"plain {difference['plain']}, drafted {difference['drafted']}"
            )
        return "ids identical"


def warm_up(engine: Engine, ids: SequenceOf[int]) -> None:
    """Have the latency curve measured and the model warm before a clock starts."""
    assert engine.curve
    engine.generate(ids=list(ids)[:WARM_UP_TOKENS], max_new_tokens=1)


def plain_options(request: dict[str, Any]) -> dict[str, Any]:
    """The same request, decoded plainly."""
    from echodraft.engine import DraftOptions

    return {**request, "drafting": DraftOptions(drafter="none")}


def compare(drafted: Result, plain: Result) -> Comparison:
    """Compare two results of one request."""
    pairs = zip_longest(plain.token_ids, drafted.token_ids)
    difference = next(
        ({"position": i, "plain": p, "drafted": d} for i, (p, d) in enumerate(pairs) if p != d), None
    )
    timed = drafted.completion_tokens and drafted.seconds > 0
    return Comparison(plain.seconds, plain.seconds / drafted.seconds if timed else None, difference)
