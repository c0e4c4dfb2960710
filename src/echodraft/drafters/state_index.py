"""State index: hidden states of one layer, made comparable and scanned in one product.

Raw states are dominated by a few huge dimensions and a common direction: all cosines would sit close to
one. Rows are therefore z-scored per dimension over the context, clipped and scaled to length one. The
first positions are attention sinks (norms a hundred times the median): they are kept as rows, so that
row i stays position i, but take no part in the statistics and never match.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["StateIndex"]

SINKS = 4
CLIP = 5.0
SETTLED = 512  # rows after which mean and deviation are kept as they are
CHUNK = 256  # rows the memory grows by, at least


class StateIndex:
    """Rows for positions 0..n-1. Memory: n * d values, twice that until n reaches SETTLED."""

    def __init__(self) -> None:
        self._raw: Tensor | None = None  # rows as they came, until the statistics have settled
        self._keys = torch.empty(0)
        self._mean = torch.empty(0)
        self._scale = torch.empty(0)
        self._size = 0
        self._fitted = 0  # rows that mean and scale were computed from

    def __len__(self) -> int:
        return self._size

    def append(self, states: Tensor) -> None:
        """Add rows [k, d] for the next k positions; they are copied."""
        states = states.float()
        if self._fitted < SETTLED:
            self._raw = states.clone() if self._raw is None else torch.cat([self._raw, states])
            if len(self._raw) >= 2 * self._fitted:
                self._fit(self._raw)
                self._write(0, self._raw)
            else:
                self._write(self._size, states)
            if self._fitted >= SETTLED:
                self._raw = None
        else:
            self._write(self._size, states)

    def similarity(self) -> NDArray[np.float32]:
        """Float32 [n]: cosine of the last row with every row; -1 for sinks and for the last itself."""
        scores = torch.mv(self._keys[: self._size], self._keys[self._size - 1]).cpu().numpy()
        scores[:SINKS] = -1.0
        scores[-1] = -1.0
        return np.asarray(scores, dtype=np.float32)

    def _fit(self, rows: Tensor) -> None:
        body = rows[SINKS:] if len(rows) > 2 * SINKS else rows
        self._mean = body.mean(0)
        self._scale = 1.0 / (body.std(0, correction=0) + 1e-6)
        self._fitted = len(rows)

    def _write(self, start: int, states: Tensor) -> None:
        end = start + len(states)
        if end > len(self._keys):
            grown = states.new_empty(max(end, len(self._keys) * 3 // 2, CHUNK), states.shape[1])
            if start:
                grown[:start] = self._keys[:start]
            self._keys = grown
        scored = ((states - self._mean) * self._scale).clamp_(-CLIP, CLIP)
        self._keys[start:end] = torch.nn.functional.normalize(scored, dim=-1)
        self._size = end
