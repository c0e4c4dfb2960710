"""Arena: the cache rows of one sequence, written in place and rolled back by a number.

Keys and values of every layer live in one preallocated block that grows in chunks, never to the model's
maximum up front. A forward writes its rows behind the committed ones; committing moves the accepted rows
together and sets the length, which drops all others. transformers sees it as a `Cache`.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["Arena"]

CHUNK = 256  # rows added at least when the arena is full


class Arena(Cache):
    """Cache rows of one sequence: `length` committed ones, and those of the forward under way."""

    def __init__(self, num_layers: int, rows: int) -> None:
        self.length = 0
        self.capacity = rows
        self._rows = [_ArenaLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self._rows))

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows in all; keeps what is committed."""
        if rows > self.capacity:
            self.capacity = max(rows, self.capacity + CHUNK, self.capacity * 5 // 4)

    def keep(self, nodes: SequenceOf[int]) -> None:
        """Commit the rows `nodes` (increasing) of the last forward and drop its others."""
        if list(nodes) != list(range(len(nodes))):
            for layer in self._rows:
                layer.gather(self.length, nodes)
        self.length += len(nodes)


class _ArenaLayer(CacheLayerMixin):
    """Keys and values of one layer: [1, heads, capacity, head width]."""

    is_sliding = False  # windows are masks over positions here, never dropped rows
    is_croppable = True
    keys: Tensor
    values: Tensor

    def __init__(self, arena: Arena) -> None:
        initialise: Any = super().__init__  # transformers leaves it untyped
        initialise()
        self._arena = arena

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = _like(key_states, self._arena.capacity)
        self.values = _like(value_states, self._arena.capacity)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write rows behind the committed ones; views of committed and new rows."""
        start = self._arena.length
        end = start + key_states.shape[2]
        self._arena.reserve(end)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif self.keys.shape[2] < self._arena.capacity:
            self.keys = _grown(self.keys, self._arena.capacity, start)
            self.values = _grown(self.values, self._arena.capacity, start)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def gather(self, start: int, nodes: SequenceOf[int]) -> None:
        """Move rows start + nodes to start, start + 1, ... (indexing copies, so none is overwritten)."""
        rows = torch.tensor(nodes, device=self.keys.device) + start
        end = start + len(nodes)
        self.keys[:, :, start:end] = self.keys[:, :, rows]
        self.values[:, :, start:end] = self.values[:, :, rows]

    def get_seq_length(self) -> int:
        return self._arena.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._arena.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        raise NotImplementedError("rows are dropped by Arena.keep")


def _like(states: Tensor, rows: int) -> Tensor:
    # Zeros, not empty memory: a masked row counts 0 * value, and 0 * NaN would be NaN.
    return states.new_zeros(states.shape[0], states.shape[1], rows, states.shape[3])


def _grown(rows: Tensor, capacity: int, used: int) -> Tensor:
    grown = _like(rows, capacity)
    grown[:, :, :used] = rows[:, :, :used]
    return grown
