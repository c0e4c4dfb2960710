"""A transformers model as target: prefill, tree verification, commit.

Two ways lead through a model. The *fast path* (Llama, Qwen2, Qwen3, Gemma 3) writes cache rows into an
`Arena` and brings its own attention function. Every other architecture takes the *plain cache*:
transformers' own cache and attention with an explicit mask (`plain_cache`). The model is never modified:
hooks and the attention function are in place only while a forward runs.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Sequence as SequenceOf
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import psutil
import torch
from torch import Tensor
from transformers import PreTrainedModel

from echodraft.decoding.interfaces import Needs, Progress, Rows, TargetInfo
from echodraft.decoding.sequence import Sequence
from echodraft.decoding.tree import DraftTree
from echodraft.errors import ModelNotUsable, OutOfMemory
from echodraft.targets.huggingface.arena import Arena
from echodraft.targets.huggingface.attention import RowMask, configs_of, own_attention
from echodraft.targets.huggingface.describe import describe
from echodraft.targets.huggingface.states import blocks_of, capture

__all__ = ["CacheRows", "HuggingFaceTarget"]

PREFILL_CHUNK = 512  # prompt rows per forward: large enough for full speed, small enough for progress
HEADROOM = 256  # rows reserved beyond the prompt at first
# One forward of a model at a time: hooks and the attention function of one would reach into another's.
_LOCKS: WeakKeyDictionary[PreTrainedModel, threading.RLock] = WeakKeyDictionary()


class CacheRows(Protocol):
    """Cache rows of one sequence: `Arena`, or the plain cache."""

    length: int

    def keep(self, nodes: SequenceOf[int]) -> None:
        """Commit rows of the last forward, drop its others."""


class HuggingFaceTarget:
    """Contract: see `decoding.interfaces.Target`. Holds one cache per live sequence."""

    def __init__(self, model: PreTrainedModel, name: str = "") -> None:
        self.model = model
        self._check_mode()
        self.info: TargetInfo = describe(model, name)
        self._blocks = blocks_of(model)
        self._configs = configs_of(model)
        self._caches: dict[int, CacheRows] = {}
        self._needs: dict[int, Needs] = {}
        parameters = inspect.signature(model.forward).parameters
        self._lock = _LOCKS.setdefault(model, threading.RLock())
        self._cache_keyword = "cache" if "cache" in parameters else "past_key_values"

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        weight = self.model.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight.device

    def prefill(self, sequence: Sequence, needs: Needs, progress: Progress | None = None) -> Rows:
        """Forward the prompt in chunks; see `decoding.interfaces.Target`."""
        prompt = sequence.ids[: sequence.prompt_length]
        self._check_mode()
        self._check_memory(len(prompt) + sequence.room)
        cache = self._new_cache(len(prompt) + min(sequence.room, HEADROOM) + 1)
        self._caches[id(sequence)], self._needs[id(sequence)] = cache, needs
        wanted = _prompt_positions(prompt.tolist(), needs.prompt_logits)
        logits: list[Tensor] = []
        states: dict[int, list[Tensor]] = {layer: [] for layer in needs.layers}
        # A RoPE that looks at the longest position of a call must see the whole prompt at once.
        size = PREFILL_CHUNK if self.info.draft_limit is None else len(prompt)
        for start in range(0, len(prompt), size):
            chunk = prompt[start : start + size]
            depths = torch.arange(len(chunk), device=self.device)
            inside = [position - start for position in wanted if 0 <= position - start < len(chunk)]
            rows = self._forward(cache, torch.from_numpy(chunk), depths, None, inside, needs.layers)
            cache.keep(range(len(chunk)))
            logits.append(rows.logits)
            for layer, parts in states.items():
                parts.append(rows.states[layer])
            if progress is not None:
                progress("prefill", start + len(chunk), len(prompt))
        joined = {layer: torch.cat(parts) for layer, parts in states.items()}
        return Rows(torch.cat(logits), joined, wanted)

    def verify(self, sequence: Sequence, tree: DraftTree) -> Rows:
        """Forward every node of `tree`; see `decoding.interfaces.Target`."""
        depths = torch.from_numpy(tree.depths).to(self.device)
        ancestors = None if tree.is_chain() else torch.from_numpy(tree.ancestor_mask()).to(self.device)
        cache, needs = self._caches[id(sequence)], self._needs[id(sequence)]
        tokens = torch.from_numpy(tree.tokens)
        return self._forward(cache, tokens, depths, ancestors, range(len(tree)), needs.layers)

    def commit(self, sequence: Sequence, nodes: SequenceOf[int]) -> None:
        """Keep the cache rows of `nodes`."""
        self._caches[id(sequence)].keep(nodes)

    def release(self, sequence: Sequence) -> None:
        """Drop the cache of `sequence`."""
        self._caches.pop(id(sequence), None)
        self._needs.pop(id(sequence), None)

    def time_forward(self, rows: int, context: int) -> float:
        """Seconds of one forward of a chain of `rows` rows behind `context` cached rows of no meaning.

        Positions stay inside the model's context: fewer rows are cached, or the last position repeated.
        """
        context = max(min(context, self.info.context_limit - rows), 0)
        cache = self._new_cache(context + rows)
        self._fill(cache, context)
        tokens = torch.zeros(rows, dtype=torch.int64)
        depths = torch.arange(rows, device=self.device).clamp_max(self.info.context_limit - 1 - context)
        start = time.perf_counter()
        out = self._forward(cache, tokens, depths, None, range(rows), frozenset())
        out.argmax(0)  # waits for a GPU
        return time.perf_counter() - start

    def _new_cache(self, rows: int) -> CacheRows:
        return Arena(self.info.num_layers, rows)

    def _fill(self, cache: CacheRows, rows: int) -> None:
        """Pretend that `rows` rows are cached."""
        cache.length = rows

    def _forward(
        self,
        cache: CacheRows,
        tokens: Tensor,
        depths: Tensor,
        ancestors: Tensor | None,
        logits_of: SequenceOf[int],
        layers: frozenset[int],
    ) -> Rows:
        """Forward rows behind the committed ones; logits of the rows `logits_of`, states of all."""
        mask = RowMask(cache.length, depths, ancestors)
        keep = torch.tensor(list(logits_of), dtype=torch.int64, device=self.device)
        arguments: dict[str, Any] = {self._cache_keyword: cache, "row_mask": mask}
        with (
            self._lock,
            torch.no_grad(),
            own_attention(self._configs),
            capture(self._blocks, layers) as states,
        ):
            output = self.model(
                input_ids=tokens.to(self.device)[None],
                position_ids=mask.positions,
                use_cache=True,
                logits_to_keep=keep,
                **arguments,
            )
        return Rows(output.logits[0], states)

    def _check_mode(self) -> None:
        if self.model.training:
            raise ModelNotUsable("the model is in training mode (dropout is on); call model.eval() first")

    def _check_memory(self, rows: int) -> None:
        """Refuse a sequence whose cache cannot fit, before anything is computed."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        needed = 2 * self.info.num_layers * heads * width * rows * self.model.dtype.itemsize
        free = _free_memory(self.device)
        if needed > free:
            raise OutOfMemory(
                f"a context of {rows:,} tokens needs {needed / 2**30:.1f} GiB of cache and only "
                f"{free / 2**30:.1f} GiB are free; shorten the prompt or lower max_new_tokens"
            )


def _prompt_positions(prompt: list[int], count: int) -> list[int]:
    """Last occurrences of the `count` most frequent tokens, then the last position; increasing."""
    last = {token: position for position, token in enumerate(prompt)}
    common = [last[token] for token, _ in Counter(prompt).most_common(count)]
    return sorted({*common, len(prompt) - 1})


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
