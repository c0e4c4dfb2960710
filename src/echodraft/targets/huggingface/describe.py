"""What a transformers model says of itself: context, end tokens, limits on drafts, fingerprint."""

from __future__ import annotations

import hashlib
import platform
from typing import Any

import torch
import transformers
from transformers import AutoModelForMaskedLM, PreTrainedModel

from echodraft.decoding.interfaces import TargetInfo
from echodraft.targets.huggingface.states import blocks_of

__all__ = ["describe", "end_tokens", "is_encoder"]

NO_LIMIT = 1 << 20  # context of models that state none (ALiBi)
# RoPE variants whose frequencies depend on the longest position of the call: a draft that crosses the
# boundary would change rows that plain decoding computes differently.
MOVING_ROPE = frozenset({"dynamic", "longrope"})


def describe(model: PreTrainedModel, name: str) -> TargetInfo:
    """Read everything that is constant for the life of a target."""
    config = model.config.get_text_config()
    blocks = blocks_of(model)
    embedding = model.get_input_embeddings()
    assert isinstance(embedding.weight, torch.Tensor)
    return TargetInfo(
        name=name or model.config.name_or_path or type(model).__name__,
        vocabulary_size=int(embedding.weight.shape[0]),
        width=int(config.hidden_size),
        num_layers=len(blocks) if blocks is not None else 1,
        context_limit=_context_limit(config),
        end_tokens=end_tokens(model),
        fingerprint=_fingerprint(model),
        draft_limit=_draft_limit(config),
    )


def end_tokens(model: PreTrainedModel) -> frozenset[int]:
    """All end tokens: those of the generation config, else of the config."""
    for source in (getattr(model, "generation_config", None), model.config.get_text_config()):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else [int(i) for i in ids])
    return frozenset()


def is_encoder(config: Any) -> bool:
    """Whether a model of this config reads both ways: BERT and its kin, which transformers also lists as
    causal models (they are, with is_decoder=True)."""
    return type(config) in AutoModelForMaskedLM._model_mapping and not getattr(config, "is_decoder", True)


def _context_limit(config: Any) -> int:
    limits = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions", "max_seq_len")]
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else NO_LIMIT


def _draft_limit(config: Any) -> int | None:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    variants = [v for v in rope.values() if isinstance(v, dict)] or [rope]
    for variant in variants:
        if variant.get("rope_type") in MOVING_ROPE:
            known = variant.get("original_max_position_embeddings") or config.max_position_embeddings
            return int(known)
    return None


def _fingerprint(model: PreTrainedModel) -> str:
    """Names what a latency curve depends on: shapes, dtype, device, threads, versions."""
    device = next(model.parameters()).device
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    facts = [
        type(model).__name__,
        str(sum(p.numel() for p in model.parameters())),
        str(model.config.get_text_config().num_hidden_layers),
        str(model.dtype),
        where,
        str(torch.get_num_threads()),
        torch.__version__,
        transformers.__version__,
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]


def _processor() -> str:
    """Name and vector extensions of the processor: machines of one name differ in AVX-512."""
    return f"{platform.machine()} {platform.processor()} {torch.backends.cpu.get_cpu_capability()}"
