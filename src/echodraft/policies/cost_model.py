"""The cost model: verify as many nodes as pay for themselves on this machine, also none.

A step with B drafted nodes decides 1 + (sum of their values) tokens in T(1 + B) + t seconds, t being the
time that drafting took. The budget is the B in 0..limit with the most tokens per second. T is the
target's latency curve, measured on the machine; it is not monotonic on CPUs (two rows may cost more than
eight), so every B is compared. Values are estimates: what they promised in the steps before is compared
with what was accepted, and promises are discounted accordingly. Own derivation (docs/architecture.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path, best
from echodraft.errors import InvalidRequest

__all__ = ["CostModel", "FixedBudget", "LatencyCurve"]

IDLE_STEPS = 8  # drafts that did not pay so often in a row are skipped...
PROBE_EVERY = 4  # ...but for one in so many steps, which keeps calibration alive
MEMORY = 0.97  # weight of a promise per step of age: about the last thirty steps count
TRUST = 16.0  # accepted nodes that the promises are believed by from the start


@dataclass(frozen=True, slots=True)
class LatencyCurve:
    """Seconds per forward by number of rows, at a context of `context` tokens.

    rows, seconds: measured points, rows increasing from 1; between them T is read off linearly.
    per_row_token: what one row more costs per token of context, beyond `context`.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    context: int = 256
    per_row_token: float = 0.0

    def __post_init__(self) -> None:
        if not self.rows or self.rows[0] != 1 or len(self.rows) != len(self.seconds):
            raise InvalidRequest(f"a latency curve needs times from 1 row on, got rows {self.rows}")

    def at(self, context: int, limit: int) -> NDArray[np.float64]:
        """Float64 [limit]: seconds of a forward of 1..limit rows at this context."""
        rows = np.arange(1, limit + 1)
        flat = np.interp(rows, self.rows, self.seconds)
        if limit > self.rows[-1]:  # beyond the last point the curve goes on with its mean slope
            slope = (self.seconds[-1] - self.seconds[0]) / max(self.rows[-1] - 1, 1)
            flat += np.maximum(rows - self.rows[-1], 0) * slope
        return np.asarray(flat + max(context - self.context, 0) * self.per_row_token * rows, dtype=np.float64)


class CostModel:
    """Budget policy: the number of nodes with the most expected tokens per second.

    curve:  latency curve of the target.
    table:  acceptance table to keep up to date.
    limit:  the most drafted nodes per step (num_speculative_tokens).
    clock:  seconds, to measure what drafting itself takes.
    """

    def __init__(
        self,
        curve: LatencyCurve,
        table: AcceptanceTable,
        limit: int = 64,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._curve = curve
        self._table = table
        self._limit = limit
        self._clock = clock
        self._asked = 0.0
        self._idle = 0
        self._promised = 0.0
        self._accepted = 0.0

    def wants_drafts(self, sequence: Sequence) -> bool:
        """False while drafts have not paid for a while, except for a probe now and then."""
        self._asked = self._clock()
        if self._limit == 0 or sequence.room <= 1:
            return False
        return self._idle < IDLE_STEPS or self._idle % PROBE_EVERY == 0

    def select(self, tree: DraftTree, sequence: Sequence) -> DraftTree:
        """Cut `tree` to the number of nodes with the most expected tokens per second."""
        values = -np.sort(-tree.values)[: self._limit + 1]
        tokens = 1.0 + self.discount * (np.cumsum(values) - 1.0)
        seconds = self._curve.at(sequence.committed, len(values)) + (self._clock() - self._asked)
        nodes = int(np.argmax(tokens / seconds)) + 1
        self._idle = self._idle + 1 if nodes == 1 else 0
        return best(tree, nodes)

    @property
    def discount(self) -> float:
        """Accepted over promised nodes of the last steps; 1 while little is known."""
        return (self._accepted + TRUST) / (self._promised + TRUST)

    def observe(self, tree: DraftTree, paths: SequenceOf[Path], result: Verification) -> None:
        """Score all proposals, verified or not, and the promises of the tree, against what came out."""
        self._table.observe(paths, result.tokens)
        self._promised = MEMORY * self._promised + float(tree.values[1:].sum())
        self._accepted = MEMORY * self._accepted + len(result.nodes[1:])


class FixedBudget:
    """Budget policy without a clock: up to `limit` nodes, none of a value below `min_value`.

    For comparisons of drafters at equal numbers of nodes, and for figures that do not depend on the
    machine.
    """

    def __init__(self, table: AcceptanceTable, limit: int = 64, min_value: float = 0.0) -> None:
        self._table = table
        self._limit = limit
        self._min_value = min_value

    def wants_drafts(self, sequence: Sequence) -> bool:
        """Whenever a draft could be accepted at all."""
        return self._limit > 0 and sequence.room > 1

    def select(self, tree: DraftTree, sequence: Sequence) -> DraftTree:
        """The best `limit` nodes of at least `min_value`."""
        worthy = int((tree.values >= self._min_value).sum())
        return best(tree, min(worthy, self._limit + 1))

    def observe(self, tree: DraftTree, paths: SequenceOf[Path], result: Verification) -> None:
        """Score all proposals against what came out."""
        self._table.observe(paths, result.tokens)
