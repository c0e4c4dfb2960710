"""SRSD: alignment, ambiguity, renaming, and what happens without its states."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echodraft.decoding.interfaces import Rows
from echodraft.drafters.copying import copy_end
from echodraft.drafters.registry import build
from echodraft.drafters.srsd import SRSDDrafter, first_bin, nominal_rate
from tests.drafters.runs import context, every_layer, run, sequence_of, slot_states

BLOCK = list(range(100, 150))
LEAD = list(range(900, 908))  # before what is tested: the first states are sinks and never match
LEAD_SLOTS = list(range(80, 88))


def noise(length, width=64, seed=9):
    return np.random.default_rng(seed).standard_normal((length, width)).astype(np.float32)


def test_a_block_that_comes_again_is_accepted_whole():
    prompt, script = [*LEAD, *BLOCK, 7, 8, 9, BLOCK[0]], BLOCK[1:]
    states = slot_states([*LEAD_SLOTS, *range(50), 90, 91, 92, 0, *range(1, 50)])
    output, statistics, target = run("srsd", prompt, script, states=every_layer(states), min_value=0.0)
    assert output == script
    assert statistics.steps == target.forwards == 1  # the prefill decides 101, one draft the other 48
    assert statistics.accepted_by_source == {"srsd:anchored": 48 - 1}


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_shift_by_one_accepts_nothing(shift, monkeypatch):
    monkeypatch.setattr(
        "echodraft.drafters.srsd.copy_end", lambda ids, start, *rest: copy_end(ids, start + shift, *rest)
    )
    prompt, script = [*LEAD, *BLOCK, 7, 8, 9, BLOCK[0]], BLOCK[1:]
    states = slot_states([*LEAD_SLOTS, *range(50), 90, 91, 92, 0, *range(1, 50)])
    _, statistics, _ = run("srsd", prompt, script, states=every_layer(states), min_value=0.0)
    assert statistics.accepted_by_source == {}


def ambiguous(generator):
    """A prompt in which token 1 stands eight times with different continuations, and the right one."""
    contexts = list(range(8))
    generator.shuffle(contexts)
    slots, tokens = [], []
    for slot in contexts:  # filler, filler, anchor, continuation
        tokens += [20 + generator.randrange(5), 20 + generator.randrange(5), 1, 50 + slot]
        slots += [200 + generator.randrange(50), 300 + generator.randrange(50), slot, 100 + slot]
    wanted = contexts[generator.randrange(7)]
    tokens += [20, 21, 1]
    slots += [260, 360, wanted]
    recent, earliest = 50 + contexts[-1], 50 + contexts[0]
    return tokens, slots, 50 + wanted, recent, earliest


def first_guess(tokens, states):
    drafter = build("srsd", context(), {})
    assert isinstance(drafter, SRSDDrafter)
    sequence = sequence_of(tokens)
    index = drafter._layer
    rows = torch.from_numpy(states[: len(tokens) - 1])
    drafter.start(sequence, Rows(torch.empty(0), {index: rows}))
    return drafter.propose(sequence)[0].tokens[0]


def test_of_many_occurrences_the_one_in_a_like_state_is_copied():
    generator = random.Random(0)
    right = {"similar": 0, "recent": 0, "earliest": 0, "random states": 0}
    for _ in range(60):
        tokens, slots, wanted, recent, earliest = ambiguous(generator)
        right["similar"] += first_guess(tokens, slot_states(slots, seed=3)) == wanted
        right["random states"] += (
            first_guess(tokens, noise(len(tokens), seed=generator.randrange(999))) == wanted
        )
        right["recent"] += recent == wanted
        right["earliest"] += earliest == wanted
    assert right["similar"] >= 45
    assert max(right["recent"], right["earliest"], right["random states"]) <= 20


def test_a_renamed_function_is_copied_on_where_text_matching_finds_nothing():
    # Of every three tokens two are new names, so the root is new wherever the third, kept one comes next.
    source = [token for i in range(12) for token in (1000 + i, 2000 + i, 3000 + i)]
    answer = [token for i in range(12) for token in (51000 + i, 52000 + i, 3000 + i)]
    states = slot_states([*LEAD_SLOTS, *range(36), 90, *range(36), 91])
    _, semantic, _ = run("srsd", [*LEAD, *source, 5], answer, states=every_layer(states))
    _, lexical, _ = run("suffix_automaton", [*LEAD, *source, 5], answer)
    accepted = semantic.accepted_by_source
    assert accepted["srsd:substitution"] + accepted["srsd:pointer"] >= 8
    assert lexical.accepted_by_source == {}


def test_a_single_renamed_token_is_bridged():
    source = list(range(10, 40))
    answer = [*range(10, 24), 777, *range(25, 40)]
    slots = list(range(30))
    states = slot_states([*LEAD_SLOTS, *slots, 90, *slots, 91])
    prompt = [*LEAD, *source, 5]
    _, with_states, _ = run("srsd", prompt, answer, states=every_layer(states), min_value=0.0)
    _, lexical, _ = run("suffix_automaton", prompt, answer, min_value=0.0)
    assert with_states.accepted_by_source["srsd:substitution"] + with_states.accepted_by_source.get(
        "srsd:pointer", 0
    )
    assert with_states.steps < lexical.steps


def test_random_states_find_fewer_tokens_than_the_true_ones():
    generator = random.Random(4)
    good = bad = 0
    for _ in range(20):
        tokens, slots, wanted, _, _ = ambiguous(generator)
        script = [wanted, 60, 61]
        pad = [400, 401, 402]
        _, true, _ = run("srsd", tokens[:-1], [1, *script], states=every_layer(slot_states([*slots, *pad])))
        _, false, _ = run(
            "srsd", tokens[:-1], [1, *script], states=every_layer(noise(len(slots) + 3)), min_value=0.1
        )
        good += sum(true.accepted_by_source.values())
        bad += sum(false.accepted_by_source.values())
    assert good > bad


@settings(deadline=None, max_examples=60)
@given(
    prompt=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    seed=st.integers(0, 5),
    options=st.fixed_dictionaries(
        {"substitutions": st.integers(0, 3), "branches": st.integers(1, 4), "max_length": st.integers(1, 9)}
    ),
)
def test_proposals_are_copies_of_the_context_with_rates_between_0_and_1(prompt, seed, options):
    drafter = build("srsd", context(), options)
    assert isinstance(drafter, SRSDDrafter)
    sequence = sequence_of([*prompt, 1])
    drafter.start(
        sequence, Rows(torch.empty(0), {drafter._layer: torch.from_numpy(noise(len(prompt), 8, seed))})
    )
    paths = drafter.propose(sequence)
    firsts = [path.tokens[0] for path in paths]
    assert len(firsts) == len(set(firsts)) <= options["branches"]
    known = set(prompt) | {1}
    for path in paths:
        assert 0 < len(path.tokens) == len(path.rates) == len(path.bins) <= options["max_length"]
        assert set(path.tokens) <= known
        assert all(0.0 <= rate <= 1.0 for rate in path.rates)
        assert path.origin is not None
        assert 0 < path.origin < len(sequence.ids)
    assert sum(path.rates[0] for path in paths) <= 2.0  # bins are coarse; the merge shares out the rest


def test_the_layer_is_a_share_of_the_depth():
    drafter = build("srsd", context(), {"layer_depth": 0.5})
    assert drafter.needs.layers == {3}  # the fourth of eight
    assert build("srsd", context(), {"layer_depth": 0}).needs.layers == {0}
    assert build("srsd", context(), {"layer_depth": 1}).needs.layers == {7}


def test_bins_of_first_tokens_are_ordered_and_say_their_probability():
    likely = [p / 1000 for p in range(1, 1000)]
    bins = [first_bin(p) for p in likely]
    assert bins == sorted(bins)
    assert first_bin(1.0) == ("first", 18)
    for p, key in zip(likely, bins, strict=True):
        if 0.01 < p < 0.99:
            assert 0.6 < nominal_rate(key) / p < 1.6
