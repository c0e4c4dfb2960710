"""Near ties: only two best tokens closer than rounding can tell excuse a difference."""

from __future__ import annotations

import pytest
import torch

from echodraft.bench.near_ties import GAP, NearTieChecker, _Double, first_difference
from tests.tiny import gemma3, llama

PROMPT = [5, 9, 5, 7, 9, 12, 5]


def greedy(model, ids: list[int], count: int) -> list[int]:
    out = list(ids)
    with torch.no_grad():
        for _ in range(count):
            out.append(int(model(input_ids=torch.tensor([out])).logits[0, -1].argmax()))
    return out[len(ids) :]


def tied(apart: float):
    """A model whose best first token after PROMPT has a twin, `apart` logits behind it."""
    model = llama()
    best = greedy(model, PROMPT, 1)[0]
    twin = (best + 1) % 200
    head = model.get_output_embeddings()
    with torch.no_grad():
        hidden = model(input_ids=torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[-1][0, -1]
        head.weight[twin] = head.weight[best] - hidden * (apart / hidden.square().sum())
    return model, best, twin


def test_two_tokens_that_are_equally_good_are_a_near_tie():
    model, best, twin = tied(0.0)
    difference = NearTieChecker(model).check(PROMPT, [best, 1], [twin, 2])
    assert difference is not None
    assert difference.verdict == "near tie"
    assert difference.position == 0
    assert set(difference.best) == {best, twin}
    assert difference.gap < 1e-9


@pytest.mark.parametrize(("apart", "verdict"), [(GAP / 4, "near tie"), (GAP * 4, "different")])
def test_the_gap_decides(apart, verdict):
    model, best, twin = tied(apart)
    difference = NearTieChecker(model).check(PROMPT, [best], [twin])
    assert difference is not None
    assert difference.verdict == verdict
    assert difference.gap == pytest.approx(apart, rel=0.1)


def test_a_token_that_is_not_of_the_best_two_is_different_even_at_a_tie():
    model, best, twin = tied(0.0)
    other = next(token for token in range(200) if token not in (best, twin))
    difference = NearTieChecker(model).check(PROMPT, [best], [other])
    assert difference is not None
    assert difference.verdict == "different"
    assert difference.margin is not None
    assert difference.margin > GAP


def test_an_output_that_only_ends_sooner_is_different():
    model = llama()
    ids = greedy(model, PROMPT, 4)
    difference = NearTieChecker(model).check(PROMPT, ids, ids[:3])
    assert difference is not None
    assert (difference.verdict, difference.position, difference.tokens) == ("different", 3, (ids[3], None))


def test_equal_outputs_cost_no_copy():
    checker = NearTieChecker(llama())
    assert checker.check(PROMPT, [1, 2], [1, 2]) is None
    assert checker._exact is None


@pytest.mark.parametrize("build", [llama, gemma3])
def test_scores_are_those_of_the_model_to_far_more_digits(build):
    model = build()
    checker = NearTieChecker(model)
    exact = checker._scores(PROMPT)
    with torch.no_grad():
        single = model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    assert exact.dtype == torch.float64
    assert model.dtype == torch.float32  # the model itself is as it was
    assert torch.allclose(exact.float(), single, atol=1e-3)
    # fp64 throughout: moving every weight by less than fp32 can hold moves the scores by no more.
    assert checker._exact is not None
    with torch.no_grad():
        for weight in checker._exact.parameters():
            weight.mul_(1 + 1e-12)
    assert 0 < float((checker._scores(PROMPT) - exact).abs().max()) < 1e-8


def test_fp32_is_not_to_be_had_while_scoring():
    x = torch.ones(2, dtype=torch.float64)
    with _Double():
        assert x.float().dtype == torch.float64
        assert x.to(torch.float32).dtype == torch.float64
        assert torch.softmax(x, -1, dtype=torch.float32).dtype == torch.float64
    assert x.float().dtype == torch.float32


@pytest.mark.parametrize(
    ("a", "b", "position"), [([], [], None), ([1], [], 0), ([1, 2], [1, 2], None), ([1, 2], [1, 3, 4], 1)]
)
def test_the_first_difference_counts_a_longer_output(a, b, position):
    assert first_difference(a, b) == first_difference(b, a) == position
