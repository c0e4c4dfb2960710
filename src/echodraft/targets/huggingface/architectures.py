"""Architectures: which way a model goes, by its type."""

from __future__ import annotations

from transformers import PreTrainedModel

from echodraft.errors import ModelNotUsable
from echodraft.targets.huggingface.describe import is_encoder
from echodraft.targets.huggingface.plain_cache import PlainCacheTarget
from echodraft.targets.huggingface.target import HuggingFaceTarget

__all__ = ["has_fast_path", "wrap"]

FAST_PATH = frozenset({"llama", "qwen2", "qwen3", "gemma3_text"})


def wrap(model: PreTrainedModel, name: str = "") -> HuggingFaceTarget:
    """The target for `model`: the fast path where its architecture has one, else the plain cache.

    raises: ModelNotUsable for what is no causal language model, UnsupportedTarget, by name, where rejected
            tokens cannot be dropped again.
    """
    _refuse_other_tasks(model)
    return HuggingFaceTarget(model, name) if has_fast_path(model) else PlainCacheTarget(model, name)


def has_fast_path(model: PreTrainedModel) -> bool:
    """Whether the arena and its attention function know this architecture."""
    capped = getattr(model.config, "attn_logit_softcapping", None) is not None
    return model.config.model_type in FAST_PATH and not capped


def _refuse_other_tasks(model: PreTrainedModel) -> None:
    """Encoders, encoder-decoders, and models without a language-model head."""
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelNotUsable(f"{name} is an encoder-decoder model; choose a decoder-only one")
    if is_encoder(model.config):
        raise ModelNotUsable(f"{name} is an encoder (is_decoder=False); choose a causal language model")
    if model.get_output_embeddings() is None:
        raise ModelNotUsable(f"{name} has no language-model head; load it with AutoModelForCausalLM")
