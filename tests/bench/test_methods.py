"""Methods: what a name stands for, and what is said of one that is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from echodraft.bench.methods import parse_method, split_methods
from echodraft.bench.runner import BenchmarkSpec
from echodraft.drafters.token_recycling import TokenRecyclingConfig
from echodraft.engine import DraftOptions
from echodraft.errors import InvalidRequest

DEFAULTS = DraftOptions("none", {}, 16, "fixed", 0.05)


def test_a_drafter_takes_the_defaults_it_does_not_override():
    method = parse_method("suffix_automaton@long:min_value=0.1,max_length=64", DEFAULTS)
    assert method.name == "long"
    assert method.reference == "plain"
    drafting = method.drafting
    assert drafting is not None
    assert (drafting.drafter, drafting.num_speculative_tokens, drafting.budget) == (
        "suffix_automaton",
        16,
        "fixed",
    )
    assert drafting.min_value == 0.1
    assert drafting.options["max_length"] == 64


def test_inner_options_and_settings_reach_the_drafter():
    method = parse_method("auto:budget=cost_model,num_speculative_tokens=8,token_recycling.nodes=3", DEFAULTS)
    assert method.name == "auto:budget=cost_model,num_speculative_tokens=8,token_recycling.nodes=3"
    assert method.drafting is not None
    assert (method.drafting.budget, method.drafting.num_speculative_tokens) == ("cost_model", 8)
    inner = dataclasses.asdict(TokenRecyclingConfig())
    assert method.drafting.options["token_recycling"] == {**inner, "nodes": 3}


def test_plain_drafts_nothing_and_peers_are_compared_with_their_own_plain():
    plain = parse_method("plain", DEFAULTS)
    assert plain.drafting is not None
    assert plain.drafting.drafter == "none"
    peer = parse_method("hf:prompt_lookup", DEFAULTS)
    assert (peer.name, peer.peer, peer.drafting) == ("hf:prompt_lookup", "hf:prompt_lookup", None)
    assert peer.reference == "hf:plain"


def test_commas_separate_methods_and_the_settings_of_one():
    text = "plain, auto:min_value=0.1,budget=fixed,hf:plain,srsd@s:min_value=0.2"
    assert split_methods(text) == [
        "plain",
        "auto:min_value=0.1,budget=fixed",
        "hf:plain",
        "srsd@s:min_value=0.2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sufix_automaton", "no method 'sufix_automaton'; did you mean 'suffix_automaton'?"),
        ("hf:lookup", "no method 'hf'"),
        ("none", "no method 'none'"),
        ("plain:min_value=1", "has no settings"),
        ("auto:nodes=3", "has no option 'nodes'"),
        ("auto:budget=free", "no budget 'free'"),
        ("auto:min_value=much", "no number"),
        ("auto:min_value=2", "between 0 and 1"),
        ("auto:min_value", "key=value"),
    ],
)
def test_a_wrong_method_is_refused_with_what_there_is(text, message):
    with pytest.raises(InvalidRequest) as error:
        parse_method(text, DEFAULTS)
    assert message in str(error.value)


def test_results_go_into_a_folder_and_not_into_a_file(tmp_path):
    file = tmp_path / "results"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="is a file; name a folder"):
        BenchmarkSpec(suite=tmp_path, out=file, methods=("plain",))
