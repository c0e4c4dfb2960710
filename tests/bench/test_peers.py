"""Peers: what is counted from outside is what transformers did, and the model stays as it was."""

from __future__ import annotations

import io
import json

import pytest
import torch

from echodraft.bench import peers
from tests.tiny import byte_tokenizer, gemma3, llama

PROMPT = [5, 6, 7, 8, 5, 6, 7]


def slow_greedy(model, ids: list[int], count: int, end: list[int]) -> list[int]:
    out = list(ids)
    with torch.no_grad():
        for _ in range(count):
            out.append(int(model(input_ids=torch.tensor([out]), use_cache=False).logits[0, -1].argmax()))
            if out[-1] in end:
                break
    return out[len(ids) :]


@pytest.mark.parametrize("method", list(peers.METHODS))
@pytest.mark.parametrize("build", [llama, gemma3])
def test_ids_are_those_of_a_loop_of_forwards(build, method):
    model = build()
    expected = slow_greedy(model, PROMPT, 30, [])
    assert peers.generate(model, method, PROMPT, 30, [])["ids"] == expected


def test_end_tokens_end_the_output():
    model = llama()
    end = slow_greedy(model, PROMPT, 5, [])[3]
    answer = peers.generate(model, "hf:plain", PROMPT, 30, [end])
    assert answer["ids"] == slow_greedy(model, PROMPT, 30, [end])
    assert answer["ids"][-1] == end


def test_plain_takes_a_forward_a_token():
    answer = peers.generate(llama(), "hf:plain", PROMPT, 12, [])
    assert (answer["steps"], answer["nodes"], answer["prefill_tokens"]) == (11, 0, 1)
    assert 0 < answer["prefill_seconds"] < answer["seconds"]


@pytest.mark.parametrize("build", [llama, gemma3])
def test_what_prompt_lookup_accepts_in_the_prefill_is_no_step(build):
    model = build()
    # A prompt that ends as its own continuation goes on: the lookup then drafts right in the prefill.
    text = PROMPT + slow_greedy(model, PROMPT, 24, [])
    text = text + text[:12]
    answer = peers.generate(model, "hf:prompt_lookup", text, 20, [])
    calls = []
    handle = model.register_forward_hook(lambda *a: calls.append(1))
    peers.generate(model, "hf:prompt_lookup", text, 20, [])
    handle.remove()
    assert answer["steps"] == len(calls) - 1
    decided = len(answer["ids"]) - answer["prefill_tokens"]
    assert answer["prefill_tokens"] >= 1
    assert answer["steps"] <= decided <= answer["steps"] + answer["nodes"]


def test_one_token_is_all_prefill():
    answer = peers.generate(llama(), "hf:plain", PROMPT, 1, [])
    assert (answer["steps"], answer["prefill_tokens"]) == (0, 1)
    assert answer["prefill_seconds"] == pytest.approx(answer["seconds"])


def test_the_model_stays_as_it_was():
    model = llama()
    assert model.generation_config is not None
    model.generation_config.repetition_penalty = 5.0  # must not reach a greedy baseline
    before = model.generation_config.to_dict()
    assert peers.generate(model, "hf:plain", PROMPT, 20, [])["ids"] == slow_greedy(model, PROMPT, 20, [])
    assert model.generation_config.to_dict() == before
    assert not model._forward_pre_hooks


def test_requests_are_answered_line_by_line_and_errors_are_answers(tmp_path):
    llama().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    common = {"op": "generate", "method": "hf:plain", "max_new_tokens": 3, "end_tokens": []}
    requests = [
        {**common, "ids": PROMPT},
        {"op": "load", "name": str(tmp_path), "dtype": "float32", "device": "cpu", "threads": None},
        {**common, "ids": [100_000]},
        {**common, "ids": PROMPT},
    ]
    out = io.StringIO()
    peers.serve(io.StringIO("".join(json.dumps(one) + "\n" for one in requests)), out)
    early, loaded, failed, good = map(json.loads, out.getvalue().splitlines())
    assert early == {"error": "RuntimeError: no model is loaded"}
    assert loaded["attention"] == min(loaded["timed"], key=loaded["timed"].get)
    assert set(loaded["timed"]) == {"eager", "sdpa"}
    assert "IndexError" in failed["error"]
    assert len(good["ids"]) == 3
