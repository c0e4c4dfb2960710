"""Peers: transformers' own decoding, in a process that echodraft's engine never enters.

    python -m echodraft.bench.peers        (JSON lines on stdin, one answer a line on stdout)

The first line loads a model with plain transformers and picks the faster of its eager and SDPA attention
by a short timing; every further line generates greedily. Forwards are counted from outside, by a hook
that runs before the model's own forward; the first one (the prefill) is left out.

Surprise: transformers' prompt lookup drafts in the prefill too, so the first forward may decide several
tokens. Where the second forward starts tells how many (`prefill_tokens`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

__all__ = ["METHODS", "generate", "load", "serve"]

# What `generate` is given beside the common settings; 10 and 3 are transformers' usual values.
METHODS: dict[str, dict[str, Any]] = {
    "hf:plain": {},
    "hf:prompt_lookup": {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 3},
}
ATTENTION = ("sdpa", "eager")
TIMED_PROMPT, TIMED_TOKENS, TIMED_ROUNDS = 96, 12, 3


@dataclass(frozen=True, slots=True)
class _Forward:
    """rows: tokens of the forward; start: position of the first; begin: when it began."""

    rows: int
    start: int
    begin: float


def load(name: str, dtype: str, device: str, threads: int | None) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model, with the faster attention, and what was timed (seconds by attention)."""
    if threads is not None:
        torch.set_num_threads(threads)
    chosen = "auto" if dtype == "auto" else getattr(torch, dtype)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=chosen).eval()
    torch.nn.Module.to(model, device)
    size = int(model.get_input_embeddings().weight.shape[0])
    prompt = [7 * i % size for i in range(TIMED_PROMPT)]
    seconds: dict[str, float] = {}
    for _ in range(TIMED_ROUNDS):  # rounds: a disturbance hits both
        for attention in ATTENTION:
            model.set_attn_implementation(attention)
            taken = generate(model, "hf:plain", prompt, TIMED_TOKENS, ())["seconds"]
            seconds[attention] = min(taken, seconds.get(attention, taken))
    fastest = min(seconds, key=lambda attention: seconds[attention])
    model.set_attn_implementation(fastest)
    return model, {"attention": fastest, "timed": seconds, "threads": torch.get_num_threads()}


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    method: str,
    ids: SequenceOf[int],
    max_new_tokens: int,
    end_tokens: SequenceOf[int],
) -> dict[str, Any]:
    """Greedy ids of `method`, with times and forwards; the model's own generation config stays as it is.

    end_tokens: ids that end the output; none: it runs to max_new_tokens.
    """
    prompt = torch.tensor([list(ids)], device=model.device)
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,  # what is not said here comes from the model's own generation config
        eos_token_id=list(end_tokens) or None,
        pad_token_id=0,  # one sequence is never padded; without it, transformers warns
        **METHODS[method],
    )
    run: Any = model.generate
    with _counted(model) as forwards:
        begin = time.perf_counter()
        output = run(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
        new: list[int] = output[0, len(ids) :].tolist()
        end = time.perf_counter()
    decoding = forwards[1:]
    return {
        "ids": new,
        "seconds": end - begin,
        "prefill_seconds": (decoding[0].begin if decoding else end) - begin,
        "prefill_tokens": decoding[0].start - len(ids) + 1 if decoding else len(new),
        "steps": len(decoding),
        "nodes": sum(forward.rows - 1 for forward in decoding),
    }


@contextmanager
def _counted(model: PreTrainedModel) -> Iterator[list[_Forward]]:
    """Collect the forwards that run inside the block."""
    forwards: list[_Forward] = []

    def before(_module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        begin = time.perf_counter()
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        cache = kwargs.get("cache") if kwargs.get("cache") is not None else kwargs.get("past_key_values")
        start = int(cache.get_seq_length()) if cache is not None else 0
        forwards.append(_Forward(int(ids.shape[1]), start, begin))

    handle = model.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield forwards
    finally:
        handle.remove()


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until they end. A request that fails is answered with its error; the next one runs."""
    model: PreTrainedModel | None = None
    for line in requests:
        try:
            request = json.loads(line)
            if request.pop("op") == "load":
                model, answer = load(**request)
            elif model is None:
                raise RuntimeError("no model is loaded")
            else:
                answer = generate(model, **request)
        except Exception as error:  # whatever it is, the runner writes it down as this prompt's result
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    own, sys.stdout = sys.stdout, sys.stderr  # whatever prints must not break the protocol
    serve(sys.stdin, own)
