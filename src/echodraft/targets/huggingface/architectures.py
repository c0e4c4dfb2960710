"""Architectures: which way a model goes, by its type."""

from __future__ import annotations

from transformers import PreTrainedModel

from echodraft.targets.huggingface.plain_cache import PlainCacheTarget
from echodraft.targets.huggingface.target import HuggingFaceTarget

__all__ = ["has_fast_path", "wrap"]

FAST_PATH = frozenset({"llama", "qwen2", "qwen3", "gemma3_text"})


def wrap(model: PreTrainedModel, name: str = "") -> HuggingFaceTarget:
    """The target for `model`: the fast path where its architecture has one, else the plain cache.

    raises: UnsupportedTarget, by name, where rejected tokens cannot be dropped again.
    """
    return HuggingFaceTarget(model, name) if has_fast_path(model) else PlainCacheTarget(model, name)


def has_fast_path(model: PreTrainedModel) -> bool:
    """Whether the arena and its attention function know this architecture."""
    capped = getattr(model.config, "attn_logit_softcapping", None) is not None
    return model.config.model_type in FAST_PATH and not capped
