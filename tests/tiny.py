"""Tiny random models and tokenizers: every architecture the tests need, built from configs, no download.

Weights are larger than transformers' initialisation so that greedy text varies instead of repeating one
token, and end tokens are off unless a test wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 260  # 256 bytes and four special tokens
LIMIT = 128  # positions of most tiny models
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LIMIT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MHA = SIZES | {"num_key_value_heads": 4}
SPLIT = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}


def build(config: Any, seed: int = 0, spread: float = 5.0) -> PreTrainedModel:
    """A causal model of this config with seeded random weights, ready to use."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() >= 2:
                    weight.mul_(spread)
    if model.generation_config is not None:
        model.generation_config.eos_token_id = config.get_text_config().eos_token_id
        model.generation_config.pad_token_id = 0
    return model.eval()


def llama(**changes: Any) -> PreTrainedModel:
    return build(tf.LlamaConfig(**(SIZES | changes)), spread=10.0)


def llama_mha(**changes: Any) -> PreTrainedModel:
    return build(tf.LlamaConfig(**(MHA | changes)))


def qwen2(**changes: Any) -> PreTrainedModel:
    return build(tf.Qwen2Config(**(SIZES | changes)))


def qwen2_window(**changes: Any) -> PreTrainedModel:
    own = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    return build(tf.Qwen2Config(**(SIZES | own | changes)), spread=10.0)


def qwen3(**changes: Any) -> PreTrainedModel:
    return build(tf.Qwen3Config(**(SIZES | {"head_dim": 16} | changes)))


def gemma3(window: int = 4, **changes: Any) -> PreTrainedModel:
    own = {
        "head_dim": 16,
        "num_hidden_layers": 4,
        "sliding_window": window,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 16,
    }
    return build(tf.Gemma3TextConfig(**(SIZES | own | changes)), seed=1, spread=2.0)


def gemma3_window8(**changes: Any) -> PreTrainedModel:
    return gemma3(8, **changes)


def gpt2(**changes: Any) -> PreTrainedModel:
    own = {
        "vocab_size": VOCABULARY,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": LIMIT,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return build(tf.GPT2Config(**(own | changes)))


def gpt_neox(**changes: Any) -> PreTrainedModel:
    return build(tf.GPTNeoXConfig(**(SPLIT | changes)))


def opt(**changes: Any) -> PreTrainedModel:
    own = {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1}
    return build(tf.OPTConfig(**(SPLIT | own | changes)))


def bloom(**changes: Any) -> PreTrainedModel:
    own = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    config = tf.BloomConfig(**(own | {"bos_token_id": None, "eos_token_id": None} | changes))
    return build(config, spread=20.0)


def falcon_alibi(**changes: Any) -> PreTrainedModel:
    return build(tf.FalconConfig(**(SPLIT | {"alibi": True, "multi_query": True} | changes)), spread=20.0)


def falcon_rotary(**changes: Any) -> PreTrainedModel:
    return build(tf.FalconConfig(**(SPLIT | {"alibi": False, "multi_query": True} | changes)), spread=20.0)


def mistral(**changes: Any) -> PreTrainedModel:
    return build(tf.MistralConfig(**(SIZES | {"sliding_window": 4} | changes)))


def phi3(**changes: Any) -> PreTrainedModel:
    return build(tf.Phi3Config(**(SIZES | {"pad_token_id": 0} | changes)))


def mixtral(**changes: Any) -> PreTrainedModel:
    own = {"num_local_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2}
    return build(tf.MixtralConfig(**(SIZES | own | changes)))


def gpt_neo(**changes: Any) -> PreTrainedModel:
    """Its local layers count their window in rows, by a mask of their own."""
    own = {"num_heads": 4, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16}
    sizes = {k: v for k, v in SPLIT.items() if k not in ("num_hidden_layers", "num_attention_heads")}
    return build(tf.GPTNeoConfig(**(sizes | own | changes)), spread=10.0)


def gemma2(**changes: Any) -> PreTrainedModel:
    own = {"head_dim": 16, "sliding_window": 4, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16}
    config = tf.Gemma2Config(**(SIZES | own | changes))
    config._attn_implementation = "eager"  # the other implementations leave the cap out
    return build(config)


def gpt_oss(**changes: Any) -> PreTrainedModel:
    own = {"head_dim": 8, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1}
    plain_rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = tf.GptOssConfig(**(SIZES | own | {"rope_parameters": plain_rope} | changes))
    return build(config)


def gemma3_capped(**changes: Any) -> PreTrainedModel:
    """Gemma 3 with the soft-capping of its predecessor: not for the fast path."""
    return gemma3(attn_logit_softcapping=5.0, **changes)


FAST: dict[str, Callable[..., PreTrainedModel]] = {
    "llama": llama,
    "llama_mha": llama_mha,
    "qwen2": qwen2,
    "qwen2_window4": qwen2_window,
    "qwen3": qwen3,
    "gemma3_window4": gemma3,
    "gemma3_window8": gemma3_window8,
}
FALLBACK: dict[str, Callable[..., PreTrainedModel]] = {
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "opt": opt,
    "bloom": bloom,
    "falcon_alibi": falcon_alibi,
    "falcon_rotary": falcon_rotary,
    "mistral_window4": mistral,
    "gpt_neo": gpt_neo,
    "phi3": phi3,
    "mixtral": mixtral,
    "gemma2_softcap": gemma2,
    "gpt_oss_sinks": gpt_oss,
    "gemma3_softcap": gemma3_capped,
}
CHAINS_ONLY = frozenset({"bloom", "falcon_alibi", "gpt_neo"})


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, so every text and every broken piece of one can be written as ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="</s>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def sentencepiece_tokenizer(byte_fallback: bool = True) -> PreTrainedTokenizerFast:
    """Word pieces with a leading space mark and, for what they lack, one token a byte, as Llama 2 has it."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁the", "▁a", "▁cat", "the", "cat", "s", "e", "▁你", "好", "▁▁", "."]
    model = models.BPE(
        {piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=byte_fallback
    )
    tokenizer = Tokenizer(model)
    if byte_fallback:
        steps = [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
        tokenizer.decoder = decoders.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>")


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """`folder` as a checkpoint of transformers."""
    model.save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return folder


@cache
def shared(name: str) -> PreTrainedModel:
    """The model of this name, built once; tests that change a model build their own."""
    return (FAST | FALLBACK)[name]()
