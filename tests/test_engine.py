"""The engine: requests, streams, errors, and that requests do not disturb each other."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import echodraft
from echodraft.drafters.registry import DRAFTERS
from echodraft.engine import DraftOptions, Engine, Result
from echodraft.errors import EchodraftError, InvalidRequest, PromptTooLong, UnknownDrafter
from echodraft.policies.cost_model import LatencyCurve
from tests import tiny
from tests.doubles import prompt_of

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["llama", "gemma3_window4", "gpt2", "bloom"]
Make = Callable[..., Engine]


@pytest.fixture
def make(byte_tokenizer, flat_curve) -> Make:
    def build(model: PreTrainedModel | str = "llama", **options: Any) -> Engine:
        made = tiny.shared(model) if isinstance(model, str) else model
        return Engine(made, byte_tokenizer, **{"curve": flat_curve, **options})

    return build


@pytest.fixture
def engine(make) -> Engine:
    return make()


def plain(engine: Engine, **request: Any) -> Result:
    return engine.generate(**request, drafter="none")


# --- losslessness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_gives_the_plain_result(name, drafter, make):
    """Fault report 61 for what ships, under both budgets; the tokens accepted are counted."""
    engine = make(name)
    accepted = 0
    for seed in range(2):
        request: dict[str, Any] = {"ids": prompt_of(seed), "max_new_tokens": 40}
        want = plain(engine, **request)
        for budget in ("cost_model", "fixed"):
            got = engine.generate(**request, drafter=drafter, budget=budget)
            assert (got.token_ids, got.text, got.finish_reason) == (
                want.token_ids,
                want.text,
                want.finish_reason,
            )
            accepted += sum(got.statistics.accepted_by_source.values())
    assert (accepted > 0) == (drafter != "none")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_looping_prompt_with_a_small_limit_gives_exactly_that_many_ids(limit, engine):
    """Fault report 19 (transformers PR#46993)."""
    result = engine.generate(
        ids=[5, 6, 7, 5, 6, 7, 5, 6], max_new_tokens=limit, drafter="prompt_lookup", options={"num_tokens": 3}
    )
    assert (result.completion_tokens, result.finish_reason) == (limit, "length")


@pytest.mark.parametrize("prompt", [[9], [9, 10], list(range(20, 60))])
def test_prompts_with_nothing_to_look_up_are_plain_steps(prompt, engine):
    """Fault report 67 (transformers#27775): one id, two ids, all distinct."""
    result = engine.generate(ids=prompt, max_new_tokens=2, drafter="prompt_lookup")
    assert result.token_ids == plain(engine, ids=prompt, max_new_tokens=2).token_ids
    assert result.statistics.nodes == 0


def test_each_drafter_drafts_when_asked_for(engine):
    """Fault report 84 (mlx-lm PR#1297): the option reaches the loop."""
    for name in set(DRAFTERS) - {"none"}:
        result = engine.generate(ids=[*prompt_of(1)] * 3, max_new_tokens=40, drafter=name, budget="fixed")
        assert result.statistics.nodes > 0, name


@pytest.mark.parametrize("most", [0, 1, 3])
def test_the_number_of_speculative_tokens_is_kept(most, engine):
    """Fault report 86 (transformers#40739)."""
    result = engine.generate(ids=prompt_of(1) * 2, max_new_tokens=40, num_speculative_tokens=most)
    assert max(result.statistics.budgets) == most


# --- stops -----------------------------------------------------------------------------------------


def test_stop_ids_end_the_output_and_stay_in_it(engine):
    whole = plain(engine, ids=prompt_of(1), max_new_tokens=40).token_ids
    for position in (0, 1, 4, 9):
        first = whole.index(whole[position])
        got = engine.generate(ids=prompt_of(1), max_new_tokens=40, stop_token_ids=[whole[position]])
        assert (got.token_ids, got.finish_reason) == (whole[: first + 1], "stop")


def test_the_models_own_end_tokens_count_unless_ignored(make):
    """Fault reports 1-4: a list of end tokens, any of them inside a draft."""
    whole = plain(make(), ids=prompt_of(1), max_new_tokens=40).token_ids
    model = tiny.llama()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = [whole[6], 259]
    engine = make(model)
    got = engine.generate(ids=prompt_of(1), max_new_tokens=40)
    assert (got.token_ids, got.finish_reason) == (whole[: whole.index(whole[6]) + 1], "stop")
    assert engine.generate(ids=prompt_of(1), max_new_tokens=40, ignore_eos=True).token_ids == whole
    both = engine.generate(ids=prompt_of(1), max_new_tokens=40, ignore_eos=True, stop_token_ids=[whole[3]])
    assert both.token_ids == whole[: whole.index(whole[3]) + 1]


@pytest.mark.parametrize("length", [125, 126, 127])
def test_the_context_ends_the_output(length, engine):
    result = engine.generate(ids=prompt_of(1, length, 1), max_new_tokens=40)
    assert (result.completion_tokens, result.finish_reason) == (128 - length, "length")


# --- prompts ---------------------------------------------------------------------------------------


def test_a_prompt_goes_through_the_chat_template_unless_raw(engine, byte_tokenizer):
    chat = engine.encode("hé")
    assert byte_tokenizer.decode(chat) == "<|im_start|>user\nhé<|im_end|>\n<|im_start|>assistant\n"
    assert engine.encode(messages=[{"role": "user", "content": "hé"}]) == chat
    assert byte_tokenizer.decode(engine.encode("hé", raw=True)) == "hé"
    with_system = byte_tokenizer.decode(engine.encode("hé", system="be brief"))
    assert with_system.startswith("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhé")


@pytest.mark.parametrize("ids", [np.array([5, 6, 7]), torch.tensor([5, 6, 7]), (5, 6, 7)])
def test_ids_may_be_those_of_numpy_and_torch(ids, engine):
    encoded = engine.encode(ids=ids)
    assert encoded == [5, 6, 7]
    assert {type(token) for token in encoded} == {int}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({}, "exactly one of prompt, messages and ids"),
    "two prompts": ({"prompt": "a", "ids": [1]}, "exactly one of prompt, messages and ids"),
    "prompt no text": ({"prompt": 5}, "prompt must be a text, got 5"),
    "half a character": ({"prompt": "a\udce9", "raw": True}, r"no valid text: '\\udce9' at character 1"),
    "half a character in chat": ({"prompt": "\udce9"}, r"no valid text: '\\udce9' at character 0"),
    "empty prompt": ({"prompt": ""}, "the prompt is empty"),
    "blank prompt": ({"prompt": " \n"}, "the prompt is empty"),
    "empty raw prompt": ({"prompt": "", "raw": True}, "the prompt is empty"),
    "no ids": ({"ids": []}, "the prompt is empty"),
    "no messages": ({"messages": []}, "messages is empty"),
    "message no mapping": ({"messages": ["hi"]}, "needs 'role' and 'content', got 'hi'"),
    "ids no list": ({"ids": 5}, "ids must be a list of token ids, got 5"),
    "id negative": ({"ids": [1, -1]}, r"ids: -1 is no token id of this model \(0 to 259\)"),
    "id too large": ({"ids": [260]}, "ids: 260 is no token id"),
    "id no number": ({"ids": ["7"]}, "ids: '7' is no token id"),
    "id a fraction": ({"ids": [1.5]}, r"ids: 1\.5 is no token id"),
    "id a truth": ({"ids": [True]}, "ids: True is no token id"),
    "ids nested": ({"ids": [[1]]}, r"ids: \[1\] is no token id"),
    "system and raw": ({"prompt": "a", "raw": True, "system": "b"}, "system goes with a prompt"),
    "system and ids": ({"ids": [1], "system": "b"}, "system goes with a prompt"),
    "stop id too large": ({"ids": [1], "stop_token_ids": [260]}, "stop_token_ids: 260 is no token id"),
    "stop ids no list": (
        {"ids": [1], "stop_token_ids": 5},
        "stop_token_ids must be a list of token ids, got 5",
    ),
    "limit negative": ({"ids": [1], "max_new_tokens": -1}, "max_new_tokens must be .* at least 0, got -1"),
    "limit NaN": ({"ids": [1], "max_new_tokens": float("nan")}, "max_new_tokens must be .*, got nan"),
    "limit a fraction": ({"ids": [1], "max_new_tokens": 1.5}, r"max_new_tokens must be .*, got 1\.5"),
    "limit a truth": ({"ids": [1], "max_new_tokens": True}, "max_new_tokens must be .*, got True"),
    "unknown option": ({"ids": [1], "max_tokens": 3}, "unknown option 'max_tokens'; known: drafter"),
    "beams": ({"ids": [1], "num_beams": 2}, "unknown option 'num_beams'"),
    "a cache": ({"ids": [1], "past_key_values": object()}, "unknown option 'past_key_values'"),
    "unknown budget": ({"ids": [1], "budget": "all"}, "no budget 'all'; known: cost_model, fixed"),
    "nodes negative": (
        {"ids": [1], "num_speculative_tokens": -1},
        "num_speculative_tokens must be .*, got -1",
    ),
    "value NaN": ({"ids": [1], "min_value": float("nan")}, "min_value must be between 0 and 1, got nan"),
    "value too high": ({"ids": [1], "min_value": 1.5}, r"min_value must be between 0 and 1, got 1\.5"),
    "drafter no name": ({"ids": [1], "drafter": None}, "drafter must be a drafter's name, got None"),
    "options no mapping": ({"ids": [1], "options": 5}, "options must be a mapping .*, got 5"),
    "drafting no options": (
        {"ids": [1], "drafting": {"drafter": "none"}},
        "drafting must be DraftOptions, got",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_one_sentence_that_names_the_value(case, engine):
    request, why = WRONG[case]
    with pytest.raises(InvalidRequest, match=why) as caught:
        engine.stream(**request)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")
    assert not engine.target._caches


def test_an_unknown_drafter_gets_the_nearest_known_name(engine):
    with pytest.raises(UnknownDrafter, match="no drafter 'srds'; did you mean 'srsd'"):
        engine.stream(ids=[1], drafter="srds")
    with pytest.raises(UnknownDrafter, match="no option 'num_token'; did you mean 'num_tokens'"):
        engine.stream(ids=[1], drafter="prompt_lookup", options={"num_token": 3})


def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers(engine):
    with pytest.raises(PromptTooLong, match="the prompt has 128 tokens and the model's context ends at 128"):
        engine.stream(ids=[1] * 128)


# --- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_the_pieces_of_a_stream_are_the_text(name, drafter, make):
    stream = make(name).stream(ids=prompt_of(2), max_new_tokens=60, drafter=drafter)
    pieces = list(stream)
    assert "".join(pieces) == stream.result.text
    assert all(pieces)
    assert len(stream.sources) == len(stream.token_ids) == stream.result.completion_tokens


@pytest.mark.parametrize("how", ["close", "drop", "error"])
def test_leaving_a_stream_frees_its_rows_and_leaves_the_engine_usable(how, engine):
    """Fault report 35 in small: a request that is given up changes no other."""
    want = engine.generate(ids=prompt_of(1), max_new_tokens=30)
    stream = engine.stream(ids=prompt_of(2), max_new_tokens=60)
    next(stream)
    assert engine.target._caches
    if how == "close":
        stream.close()
        result = stream.result
        assert result.finish_reason == "abort"
        assert 0 < result.completion_tokens < 60
        stream.close()
        assert "".join(stream) == ""
    elif how == "drop":
        del stream
    else:
        handle = tiny.shared("llama").register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(stream)
        handle.remove()
    assert not engine.target._caches
    assert engine.generate(ids=prompt_of(1), max_new_tokens=30).token_ids == want.token_ids


def test_a_stream_that_was_never_read_holds_nothing(engine):
    stream = engine.stream(ids=prompt_of(1))
    stream.close()
    assert stream.result.finish_reason == "abort"
    assert stream.result.token_ids == []
    assert not engine.target._caches


def test_two_streams_of_one_engine_may_be_read_in_turn(make):
    for name in NAMES:
        engine = make(name)
        prompts = [prompt_of(3), prompt_of(4, 5)]
        want = [plain(engine, ids=prompt, max_new_tokens=40).text for prompt in prompts]
        streams = [engine.stream(ids=prompt, max_new_tokens=40) for prompt in prompts]
        texts = ["", ""]
        alive = {0, 1}
        while alive:
            for number in sorted(alive):
                piece = next(streams[number], None)
                if piece is None:
                    alive.discard(number)
                else:
                    texts[number] += piece
        assert texts == want


def test_threads_on_one_engine_each_get_their_text(engine):
    want = {seed: plain(engine, ids=prompt_of(seed), max_new_tokens=30).token_ids for seed in range(4)}
    got: dict[int, list[int]] = {}

    def work(seed: int) -> None:
        got[seed] = engine.generate(ids=prompt_of(seed), max_new_tokens=30).token_ids

    threads = [threading.Thread(target=work, args=(seed,)) for seed in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


# --- state between requests ------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", sorted(set(DRAFTERS) - {"none"}))
def test_a_request_does_not_depend_on_those_before_it(drafter, make):
    """Fault report 33 (llama.cpp#27852): ids, sources and acceptance as on a fresh engine."""
    model = tiny.llama(max_position_embeddings=512)
    options = DraftOptions(drafter, num_speculative_tokens=16, budget="fixed")
    long, short = prompt_of(5, 10, 30), prompt_of(6, 6, 3)
    fresh = make(model, drafting=options).generate(ids=short, max_new_tokens=40)
    used = make(model, drafting=options)
    used.generate(ids=long, max_new_tokens=40)
    after = used.generate(ids=short, max_new_tokens=40)
    assert after.token_ids == fresh.token_ids
    assert after.sources == fresh.sources
    counters = [
        {k: v for k, v in r.statistics.as_dict().items() if not k.endswith("seconds")} for r in (fresh, after)
    ]
    assert counters[0] == counters[1]


def test_the_same_ids_again_give_the_same_text(engine):
    """Fault report 97 (transformers#38727): nothing is left of the first request to trip over."""
    first = engine.generate(ids=prompt_of(1), max_new_tokens=20)
    assert engine.generate(ids=prompt_of(1), max_new_tokens=20).token_ids == first.token_ids
    longer = engine.generate(ids=[*prompt_of(1), *first.token_ids], max_new_tokens=5)
    assert longer.token_ids == engine.generate(ids=prompt_of(1), max_new_tokens=25).token_ids[20:]


def test_the_callers_generation_config_is_only_read(make):
    model: Any = tiny.llama()
    model.generation_config.temperature = 0.3
    model.generation_config.do_sample = True
    before = model.generation_config.to_dict()
    make(model).generate(ids=prompt_of(1), max_new_tokens=10, stop_token_ids=[7])
    assert model.generation_config.to_dict() == before


def test_two_engines_with_different_options_do_not_disturb_each_other(make):
    one = make(drafting=DraftOptions("prompt_lookup"))
    two = make(drafting=DraftOptions("none"))
    a = one.generate(ids=prompt_of(1) * 3, max_new_tokens=30, budget="fixed")
    b = two.generate(ids=prompt_of(1) * 3, max_new_tokens=30)
    assert a.token_ids == b.token_ids
    assert set(a.statistics.drafted_by_source) == {"prompt_lookup"}
    assert not b.statistics.drafted_by_source


def test_options_of_one_request_are_those_of_the_engine_but_for_what_it_says(make):
    engine = make(drafting=DraftOptions("prompt_lookup", {"num_tokens": 2}, budget="fixed"))
    result = engine.generate(ids=prompt_of(1) * 3, max_new_tokens=30)
    assert max(result.statistics.budgets) == 2
    assert engine.generate(ids=[5], max_new_tokens=3, num_speculative_tokens=0).statistics.nodes == 0


# --- results ---------------------------------------------------------------------------------------


def test_a_result_is_plain_json(engine):
    result = engine.generate("hi", max_new_tokens=20)
    document = json.loads(json.dumps(result.as_dict()))
    assert document["token_ids"] == result.token_ids
    assert document["completion_tokens"] == 20
    assert document["prompt_tokens"] == len(engine.encode("hi"))
    assert {"steps", "mat", "nodes", "accepted_by_source", "drafted_by_source", "acceptance_by_depth"} <= set(
        document["stats"]
    )
    assert 0 < document["prefill_seconds"] < document["seconds"]
    assert document["stats"]["mat"] == pytest.approx(19 / document["stats"]["steps"])


def test_sources_say_where_each_id_came_from(engine):
    result = engine.generate(ids=prompt_of(1) * 3, max_new_tokens=30, budget="fixed")
    assert len(result.sources) == 30
    for source, count in result.statistics.accepted_by_source.items():
        assert result.sources.count(source) == count


# --- the latency curve -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom"])
def test_the_curve_is_measured_once_and_kept(name, make, own_cache, monkeypatch):
    """GPT-2 has fewer learned positions than the far point of the curve: it could not generate at all."""
    engine = make(name, curve=None)
    want = plain(engine, ids=prompt_of(1), max_new_tokens=10)
    assert not list(own_cache.rglob("*.json")), "plain decoding needs no curve"
    assert engine.generate(ids=prompt_of(1), max_new_tokens=10).token_ids == want.token_ids
    assert len(list((own_cache / "latency").iterdir())) == 1
    kept = engine.curve
    monkeypatch.setattr("echodraft.engine.measure", None)
    assert make(name, curve=None).curve == kept
    marker = LatencyCurve((1,), (7.0,))
    monkeypatch.setattr("echodraft.engine.measure", lambda *args, **keywords: marker)
    assert make(name, curve=None, recalibrate=True).curve == marker
    assert make(name, curve=None).curve == marker


def test_an_engine_from_a_folder(tiny_model_folder, make):
    engine = Engine.from_pretrained(str(tiny_model_folder))
    request: dict[str, Any] = {"ids": prompt_of(1), "max_new_tokens": 10, "drafter": "none"}
    built = make(tiny.llama(max_position_embeddings=1024))
    assert engine.generate(**request).token_ids == built.generate(**request).token_ids


# --- the public names ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", echodraft.__all__)
def test_public_names_are_there_and_documented(name):
    value = getattr(echodraft, name)
    if inspect.isclass(value):
        assert value.__doc__
    if inspect.isclass(value) and issubclass(value, Exception):
        assert issubclass(value, EchodraftError)
