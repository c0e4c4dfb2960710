"""The registry: names, options, errors, and what every drafter must keep."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from echodraft.decoding.sequence import Sequence
from echodraft.drafters.auto import AutoConfig
from echodraft.drafters.prompt_lookup import PromptLookupConfig
from echodraft.drafters.registry import DRAFTERS, build, configure, describe, parse_options
from echodraft.drafters.srsd import SRSDConfig
from echodraft.errors import InvalidRequest, UnknownDrafter
from tests.drafters.runs import context, every_layer, run


def edited(seed):
    """A random text of a small vocabulary and a lightly edited copy of it, with states and runners-up."""
    generator = random.Random(seed)
    source = [generator.randrange(2, 30) for _ in range(80)]
    answer = list(source)
    for _ in range(6):
        at = generator.randrange(len(answer))
        answer[at : at + generator.randrange(2)] = [generator.randrange(2, 40)]
    rows = len(source) + 1 + len(answer)
    states = np.random.default_rng(seed).standard_normal((rows, 16)).astype(np.float32)
    successors = np.stack([np.random.default_rng(seed + row).permutation(38)[:8] + 2 for row in range(rows)])
    return [*source, 1], answer, states, successors


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("seed", range(4))
def test_no_drafter_changes_the_output(name, seed):
    prompt, answer, states, successors = edited(seed)
    output, statistics, target = run(name, prompt, answer, states=every_layer(states), successors=successors)
    assert output == answer
    accepted = sum(statistics.accepted_by_source.values())
    assert (accepted > 0) == (name != "none")
    assert statistics.tokens == accepted + target.forwards  # every forward decides one token itself
    assert target.live == set()


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_drafter_passes_the_limit(name, limit):
    prompt, answer, states, successors = edited(9)
    output, _, _ = run(name, prompt, answer[:limit], states=every_layer(states), successors=successors)
    assert output == answer[:limit]


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_made_of_known_tokens_with_rates_and_bins(name, seed, monkeypatch):
    prompt, answer, states, successors = edited(seed)
    known = set(prompt) | set(answer) | set(successors.ravel().tolist())
    seen = []
    cls = DRAFTERS[name]
    propose = cls.propose

    def watched(self, sequence: Sequence):
        paths = propose(self, sequence)
        so_far = set(sequence.ids.tolist())
        for path in paths:
            assert 0 < len(path.tokens) == len(path.rates)
            assert len(path.bins) in (0, len(path.tokens))
            assert all(0.0 <= rate <= 1.0 for rate in path.rates)
            if path.origin is not None:  # a copy holds nothing that the context has not
                assert set(path.tokens) <= so_far
                assert sequence.ids[path.origin] == path.tokens[0]
            assert set(path.tokens) <= known
        seen.extend(paths)
        return paths

    monkeypatch.setattr(cls, "propose", watched)
    run(name, prompt, answer, states=every_layer(states), successors=successors)
    assert bool(seen) == (name != "none")


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_shortest_prompts_are_fine(name):
    for prompt in ([1], [1, 1], [1, 2, 1]):
        states = np.ones((len(prompt) + 6, 8), dtype=np.float32)
        top = np.tile(np.arange(3, 11), (len(prompt) + 6, 1))
        output, _, _ = run(name, prompt, [1, 1, 1, 1, 2, 3], states=every_layer(states), successors=top)
        assert output == [1, 1, 1, 1, 2, 3]


def test_auto_drafts_from_all_its_parts():
    sources = set()
    for seed in range(8):
        prompt, answer, states, successors = edited(seed)
        successors[:, 0] = 50 + np.arange(len(successors)) % 7
        _, statistics, _ = run("auto", prompt, answer, states=every_layer(states), successors=successors)
        sources |= set(statistics.drafted_by_source)
    assert {"srsd:anchored", "srsd:pointer", "srsd:substitution", "token_recycling"} <= sources


# --- options ----------------------------------------------------------------------------------------


def test_options_come_from_text_a_mapping_or_a_config():
    assert parse_options("prompt_lookup", ["num_tokens=7"]) == PromptLookupConfig(num_tokens=7)
    assert configure("auto", {"srsd.branches": 2}) == AutoConfig(srsd=SRSDConfig(branches=2))
    assert configure("auto", {"srsd": {"branches": 2}}) == configure("auto", {"srsd": SRSDConfig(branches=2)})
    assert parse_options("auto", ["srsd.layer_depth=0.5"]).srsd.layer_depth == 0.5
    assert parse_options("suffix_automaton", ["loops=false"]).loops is False
    assert build("prompt_lookup", context(), PromptLookupConfig(3)).config.num_tokens == 3
    assert build("auto", context()).config == AutoConfig()


@pytest.mark.parametrize(
    ("name", "texts", "error", "message"),
    [
        ("srds", [], UnknownDrafter, "no drafter 'srds'; did you mean 'srsd'\\?; known: auto, srsd, "),
        ("xyz", [], UnknownDrafter, "no drafter 'xyz'; known: auto"),
        (
            "srsd",
            ["branch=2"],
            UnknownDrafter,
            "'srsd' has no option 'branch'; did you mean 'branches'\\?; it has",
        ),
        ("auto", ["srsd.anchored=2"], UnknownDrafter, "'auto' has no option 'srsd.anchored'.*srsd.branches"),
        ("none", ["x=1"], UnknownDrafter, "it has none"),
        ("srsd", ["branches"], InvalidRequest, "key=value, got 'branches'"),
        ("srsd", ["branches=many"], InvalidRequest, "branches must be a whole number, got 'many'"),
        ("srsd", ["branches=0"], InvalidRequest, "branches must be a whole number of at least 1, got 0"),
        ("srsd", ["layer_depth=nan"], InvalidRequest, "layer_depth must be a number of at least 0, got nan"),
        ("srsd", ["layer_depth=inf"], InvalidRequest, "layer_depth must be"),
        ("auto", ["srsd.branches=-1"], InvalidRequest, "srsd.branches must be a whole number"),
        ("auto", ["srsd=2"], InvalidRequest, "srsd has options of its own.*srsd.branches"),
        ("suffix_automaton", ["loops=maybe"], InvalidRequest, "loops must be true or false"),
        ("token_recycling", ["nodes=2.5"], InvalidRequest, "nodes must be a whole number"),
    ],
)
def test_wrong_options_are_one_clear_sentence(name, texts, error, message):
    with pytest.raises(error, match=message) as caught:
        parse_options(name, texts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [2.5, True, "3", None])
def test_values_of_a_wrong_type_are_refused_in_mappings_and_configs(value):
    with pytest.raises(InvalidRequest, match="branches must be a whole number"):
        configure("srsd", {"branches": value})
    with pytest.raises(InvalidRequest, match="branches must be a whole number"):
        SRSDConfig(branches=value)


def test_the_config_of_another_drafter_is_refused():
    with pytest.raises(InvalidRequest, match="takes a SRSDConfig, got a PromptLookupConfig"):
        build("srsd", context(), PromptLookupConfig())


def test_the_description_is_complete_and_plain_json():
    described = json.loads(json.dumps(describe()))
    assert [one["name"] for one in described] == list(DRAFTERS)
    for one in described:
        assert one["summary"]
        assert one["reference"]
        assert one["needs"]
        for option in one["options"]:
            assert option["help"], (one["name"], option["name"])
            assert option["type"] in ("int", "float", "bool", "str")
    by_name = {one["name"]: one for one in described}
    assert by_name["none"]["needs"] == "tokens only"
    assert "hidden states at 0.75 of the depth" in by_name["srsd"]["needs"]
    assert {o["name"] for o in by_name["auto"]["options"]} >= {"srsd.branches", "token_recycling.nodes"}
