"""Attention over an arena: prefill and tree verification, by one function.

Registered with transformers' attention interface under `NAME`; a model uses it only inside
`own_attention`, so a caller's model is as it was afterwards. What a row may see comes from `RowMask`,
which travels as an extra keyword of `model(...)`. Windows are measured in position ids, never in rows:
siblings of a tree share a position.

Surprise: query heads that share a key head are laid out as further rows of it, which saves copying all
cached keys once per query head (at 14 heads on 2 key heads and a long context that is most of the time).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

__all__ = ["NAME", "RowMask", "configs_of", "own_attention"]

NAME = "echodraft"
FOLDED_ROWS = 128  # up to so many query rows heads are folded into rows; beyond, keys are expanded


class RowMask:
    """What each of B query rows may see of the n committed rows and of the B new ones.

    ancestors: bool [B, B], true at (i, j) if new row i sees new row j; None for causal rows.
    depths:    int64 [B], position of new row i is n + depths[i].
    """

    def __init__(self, committed: int, depths: Tensor, ancestors: Tensor | None) -> None:
        self._committed = committed
        self._depths = depths
        self._ancestors = ancestors
        self._biases: dict[int | None, Tensor | None] = {}

    @property
    def positions(self) -> Tensor:
        """Int64 [1, B]: position ids of the rows."""
        return (self._depths + self._committed)[None]

    def bias(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """[B, n + B] to add to the scores: 0 or -inf; None where every row sees all rows."""
        if window not in self._biases:
            visible = self._visible(window)
            self._biases[window] = None if visible is None else _as_bias(visible, dtype)
        return self._biases[window]

    def visible(self, window: int | None) -> Tensor:
        """Bool [B, n + B]: whether a row may see a row."""
        seen = self._visible(window)
        if seen is None:
            rows = len(self._depths)
            return torch.ones(rows, self._committed + rows, dtype=torch.bool, device=self._depths.device)
        return seen

    def _visible(self, window: int | None) -> Tensor | None:
        rows, device = len(self._depths), self._depths.device
        longest = self._committed + int(self._depths.max())
        narrow = window if window is not None and longest >= window else None
        if rows == 1 and narrow is None:
            return None
        new = self._ancestors
        if new is None:
            new = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
        seen = torch.cat([torch.ones(rows, self._committed, dtype=torch.bool, device=device), new], dim=1)
        if narrow is not None:
            keys = torch.cat([torch.arange(self._committed, device=device), self.positions[0]])
            seen &= self.positions.T - keys < narrow
        return seen


def attend(
    _module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    row_mask: RowMask | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of query [1, Hq, B, D] over key, value [1, Hk, n + B, D] -> [1, B, Hq, D].

    raises: ValueError for soft-capping or sinks, which it does not implement, and without a row mask.
    """
    if row_mask is None or kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        raise ValueError("echodraft's attention needs its row mask, and knows no soft-capping and no sinks")
    _, heads, rows, width = query.shape
    groups = heads // key.shape[1]
    bias = row_mask.bias(sliding_window, query.dtype)
    if rows <= FOLDED_ROWS:
        folded = query.reshape(1, key.shape[1], groups * rows, width)
        if bias is not None and groups > 1:
            bias = bias.repeat(groups, 1)
        out = scaled_dot_product_attention(folded, key, value, attn_mask=bias, scale=scaling)
        out = out.reshape(1, heads, rows, width)
    else:
        if groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        out = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling)
    return out.transpose(1, 2), None


def configs_of(model: PreTrainedModel) -> list[PretrainedConfig]:
    """The configs in which the parts of `model` look up their attention function."""
    AttentionInterface.register(NAME, attend)
    parts = (getattr(part, "config", None) for part in model.modules())
    configs = {id(config): config for config in parts if isinstance(config, PretrainedConfig)}
    return list(configs.values())


@contextmanager
def own_attention(configs: list[PretrainedConfig]) -> Iterator[None]:
    """Let their model use this module's attention inside the block, and what it used before afterwards."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation = implementation


def _as_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
