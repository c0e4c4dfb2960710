"""Plain cache: architectures without a fast path, through transformers' own cache and attention.

The tree goes in as an explicit 4-D mask with position ids. Whether an architecture honours both is not
taken on trust: `PlainCacheTarget` compares a small tree with plain decoding once, falls back to chains
(BLOOM and other ALiBi models derive positions from the mask) and refuses by name what gets neither right.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from echodraft.decoding.interfaces import Rows
from echodraft.decoding.sequence import Sequence
from echodraft.decoding.tree import DraftTree
from echodraft.errors import ModelNotUsable, UnsupportedTarget
from echodraft.targets.huggingface.attention import RowMask
from echodraft.targets.huggingface.states import capture
from echodraft.targets.huggingface.target import CacheRows, HuggingFaceTarget

__all__ = ["PlainCacheTarget"]

PROBE_PROMPT = 6  # rows behind which a small tree is compared with plain decoding
# Models whose `generate` forwards all tokens anew, with the long frequencies, when it passes the boundary.
STARTS_ANEW = frozenset({"phi3", "phimoe"})
KNOWN_LAYERS = frozenset({"full_attention", "sliding_attention", "attention"})


class PlainRows(DynamicCache):
    """transformers' dynamic cache whose rows can be picked and dropped; windows are masks, not rows."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def keep(self, nodes: SequenceOf[int]) -> None:
        """Commit rows of the last forward, drop its others."""
        end = self.length + len(nodes)
        for layer in self.layers:
            if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
                new = torch.tensor(list(nodes), dtype=torch.int64, device=layer.keys.device) + self.length
                rows = torch.cat([torch.arange(self.length, device=layer.keys.device), new])
                contiguous = list(nodes) == list(range(len(nodes)))
                layer.keys = layer.keys[:, :, :end] if contiguous else layer.keys[:, :, rows]
                layer.values = layer.values[:, :, :end] if contiguous else layer.values[:, :, rows]
        self.length = end

    def repeat(self, rows: int) -> None:
        """Make `rows` rows of the only one."""
        for layer in self.layers:
            if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
                layer.keys = layer.keys.repeat_interleave(rows, dim=2)
                layer.values = layer.values.repeat_interleave(rows, dim=2)
        self.length = rows


class PlainCacheTarget(HuggingFaceTarget):
    """A target on transformers' cache: slower per step than the fast path, same contract."""

    def __init__(self, model: PreTrainedModel, name: str = "") -> None:
        _refuse_recurrent(model)
        super().__init__(model, name)
        self._boundary = self.info.draft_limit if model.config.model_type in STARTS_ANEW else None
        self._parameters = inspect.signature(model.forward).parameters
        # A window that a layer itself counts in rows (GPT-Neo's) would count siblings as tokens.
        self._trees = "local" not in (getattr(model.config, "attention_layers", None) or ())
        if not self._trees or not self._agrees([-1, 0, 0, 1]):
            self._trees = False
            if not self._agrees([-1, 0, 1, 2]):
                raise UnsupportedTarget(
                    f"{type(model).__name__} does not give the same logits for several tokens at once as one "
                    "by one, so drafts on it would change its text; use another model"
                )
            self.info = replace(self.info, chains_only=True)
        if not self._is_causal():
            raise ModelNotUsable(
                f"{type(model).__name__} does not decode from left to right (its own forward without a cache "
                "gives other logits); choose a causal language model"
            )

    def verify(self, sequence: Sequence, tree: DraftTree) -> Rows:
        """Forward every node of `tree`; see `decoding.interfaces.Target`."""
        if sequence.committed != self._boundary:
            return super().verify(sequence, tree)
        # No drafts here: `draft_limit` ends them. Committed rows are written anew, the root behind them.
        cache = self._caches[id(sequence)] = self._new_cache(0)
        tokens, last = torch.from_numpy(sequence.ids), sequence.committed
        depths = torch.arange(len(tokens), device=self.device)
        rows = self._forward(cache, tokens, depths, None, [last], self._needs[id(sequence)].layers)
        cache.length = last
        return Rows(rows.logits, {layer: states[last:] for layer, states in rows.states.items()})

    def _new_cache(self, rows: int) -> CacheRows:
        return PlainRows()

    def _fill(self, cache: CacheRows, rows: int) -> None:
        """One forwarded row, repeated: the time of a forward does not depend on what is cached."""
        assert isinstance(cache, PlainRows)
        if rows:
            self._forward(cache, torch.zeros(1, dtype=torch.int64), self._zero, None, [0], frozenset())
            cache.repeat(rows)

    @property
    def _zero(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=self.device)

    def _forward(
        self,
        cache: CacheRows,
        tokens: Tensor,
        depths: Tensor,
        ancestors: Tensor | None,
        logits_of: SequenceOf[int],
        layers: frozenset[int],
    ) -> Rows:
        mask = RowMask(cache.length, depths, ancestors)
        arguments: dict[str, Any] = {self._cache_keyword: cache, **self._masked(mask, len(tokens))}
        keep = torch.tensor(list(logits_of), dtype=torch.int64, device=self.device)
        if "logits_to_keep" in self._parameters:
            arguments["logits_to_keep"] = keep
        with self._lock, torch.no_grad(), capture(self._blocks, layers) as states:
            output = self.model(input_ids=tokens.to(self.device)[None], use_cache=True, **arguments)
        logits = output.logits[0]
        return Rows(logits if "logits_to_keep" in arguments else logits[keep], states)

    def _masked(self, mask: RowMask, rows: int) -> dict[str, Any]:
        """Mask and positions in the form this architecture takes."""
        total = int(mask.visible(None).shape[1])
        if not self._trees:
            return {"attention_mask": torch.ones(1, total, dtype=torch.int64, device=self.device)}
        config = self.model.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        full = self._four_d(mask, None)
        arguments: dict[str, Any] = {"attention_mask": full}
        if window is not None:
            windowed = self._four_d(mask, window)
            if getattr(config, "layer_types", None):
                full_and_windowed = {"full_attention": full, "sliding_attention": windowed}
                arguments["attention_mask"] = full_and_windowed
            else:
                arguments["attention_mask"] = windowed
        if "position_ids" in self._parameters:
            arguments["position_ids"] = mask.positions
        return arguments

    def _four_d(self, mask: RowMask, window: int | None) -> Tensor:
        bias = torch.zeros((), dtype=self.model.dtype, device=self.device)
        lowest = torch.finfo(self.model.dtype).min
        return torch.where(mask.visible(window), bias, lowest)[None, None]

    def _agrees(self, parents: list[int]) -> bool:
        """Whether a forward of this tree behind a short prompt equals its paths forwarded one by one."""
        tokens = torch.arange(3, 3 + len(parents))
        depth: list[int] = []
        for parent in parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        ancestors = torch.eye(len(parents), dtype=torch.bool)
        for node, parent in enumerate(parents[1:], start=1):
            ancestors[node] |= ancestors[parent]
        try:
            together = self._after_prompt(tokens, torch.tensor(depth), ancestors)
            for node in range(len(parents)):
                path = torch.nonzero(ancestors[node]).flatten()
                alone = self._after_prompt(tokens[path], torch.arange(len(path)), None)[-1]
                if not _close(together[node], alone):
                    return False
        except (ValueError, RuntimeError, TypeError, IndexError, AttributeError, KeyError):
            return False  # the architecture refuses this form of mask: that is the answer
        return True

    def _after_prompt(self, tokens: Tensor, depths: Tensor, ancestors: Tensor | None) -> Tensor:
        cache = self._new_cache(0)
        self._read_prompt(cache)
        on_device = None if ancestors is None else ancestors.to(self.device)
        # Paths are forwarded row by row, as plain decoding does; only the tree goes in at once.
        if on_device is not None:
            return self._forward(
                cache, tokens, depths.to(self.device), on_device, range(len(tokens)), frozenset()
            ).logits
        rows = []
        for token in tokens:
            rows.append(self._forward(cache, token[None], self._zero, None, [0], frozenset()).logits)
            cache.keep([0])
        return torch.cat(rows)

    def _read_prompt(self, cache: CacheRows) -> Tensor:
        """Forward the probe's prompt; logits [1, V] of its last row."""
        depths = torch.arange(PROBE_PROMPT, device=self.device)
        last = self._forward(cache, self._probe_prompt(), depths, None, [PROBE_PROMPT - 1], frozenset())
        cache.keep(range(PROBE_PROMPT))
        return last.logits

    def _probe_prompt(self) -> Tensor:
        return torch.arange(7, 7 + PROBE_PROMPT) % self.info.vocabulary_size

    def _is_causal(self) -> bool:
        """Whether the model by itself, without our mask, gives the logits that ours do."""
        cache = self._new_cache(0)
        with self._lock, torch.no_grad():
            alone = self.model(input_ids=self._probe_prompt().to(self.device)[None], use_cache=False)
        return _close(self._read_prompt(cache)[0], alone.logits[0, -1])


def _close(a: Tensor, b: Tensor) -> bool:
    # Relative to the logits: those of untrained models are all near zero, right or wrong.
    tolerance = 1e-4 if a.dtype == torch.float32 else 5e-2
    return bool((a.float() - b.float()).abs().max() <= tolerance * b.float().abs().max())


def _refuse_recurrent(model: PreTrainedModel) -> None:
    """Recurrent state cannot drop rejected tokens: refuse it by the name of its layers."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS
    if kinds or getattr(model, "_is_stateful", False):
        what = ", ".join(sorted(kinds)) or "recurrent state"
        raise UnsupportedTarget(
            f"{type(model).__name__} has layers that cannot drop rejected tokens ({what}); "
            "use a model with attention layers only"
        )
