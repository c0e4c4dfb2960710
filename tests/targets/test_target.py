"""Targets on tiny models: rows, caches, states, and that the caller's model stays as it was."""

from __future__ import annotations

import functools
import hashlib
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from echodraft.decoding.interfaces import Needs
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import DraftTree, Path, merge
from echodraft.errors import ModelNotUsable, OutOfMemory, UnsupportedTarget
from echodraft.policies.latency import CONTEXT, FAR_CONTEXT
from echodraft.targets.huggingface.architectures import wrap
from echodraft.targets.huggingface.arena import Arena
from echodraft.targets.huggingface.attention import RowMask, attend
from echodraft.targets.huggingface.plain_cache import PlainCacheTarget, PlainRows
from echodraft.targets.huggingface.target import HuggingFaceTarget
from tests import tiny
from tests.doubles import DRAFTERS, Oracle, Prefix, RandomTree, prompt_of, run
from tests.reference.rows import gather_slow, visible_slow

TREES = [*tiny.FAST, *(name for name in tiny.FALLBACK if name not in tiny.CHAINS_ONLY)]


def started(target: HuggingFaceTarget, prompt: list[int], needs: Needs | None = None, room: int = 60) -> Any:
    """A sequence whose prompt is forwarded and whose root is decided; with the prefill's rows."""
    sequence = Sequence(prompt, StopRule(frozenset(), room))
    rows = target.prefill(sequence, needs or Needs())
    sequence.commit(Verification((), (rows.argmax(-1),)))
    return sequence, rows


def random_tree(root: int, seed: int, paths: int = 9, depth: int = 9) -> DraftTree:
    """Wider and deeper than a window of 4."""
    dice = random.Random(seed)
    found = []
    for _ in range(paths):
        tokens = [dice.randrange(3) + 5 for _ in range(dice.randint(1, depth))]
        found.append(Path(tokens, [0.99] * len(tokens), "random"))
    tree = merge(root, [*found, Path([5] * depth, [0.99] * depth, "deep")])
    assert depth in tree.depths
    assert not tree.is_chain()
    return tree


def fresh_logits(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """[len(ids), V]: one forward of transformers' own, without a cache."""
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits


# --- forwards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREES)
def test_every_node_of_a_tree_has_the_logits_of_its_path_alone(name):
    model = tiny.shared(name)
    target = wrap(model)
    prompt = prompt_of(1, 9)
    for seed in range(2):
        sequence, _ = started(target, prompt)
        tree = random_tree(sequence.root, seed)
        rows = target.verify(sequence, tree)
        for node in range(len(tree)):
            path = tree.tokens[tree.path(node)].tolist()
            want = fresh_logits(model, [*prompt, *path])[-1]
            assert (rows.logits[node] - want).abs().max() < 1e-4 * want.abs().max().clamp_min(1.0)
        target.release(sequence)


@pytest.mark.parametrize("name", sorted(tiny.CHAINS_ONLY))
def test_every_node_of_a_chain_has_the_logits_of_its_path_alone(name):
    model = tiny.shared(name)
    target = wrap(model)
    prompt = prompt_of(1, 9)
    sequence, _ = started(target, prompt)
    tree = merge(sequence.root, [Path([5, 6, 7, 8, 9], [0.9] * 5, "chain")])
    rows = target.verify(sequence, tree)
    want = fresh_logits(model, [*prompt, *tree.tokens.tolist()])[len(prompt) :]
    assert (rows.logits - want).abs().max() < 1e-4 * want.abs().max()


def cached_rows(target: HuggingFaceTarget, sequence: Sequence) -> list[tuple[Tensor, Tensor]]:
    """Committed keys and values of each layer."""
    cache: Any = target._caches[id(sequence)]
    return [(x.keys[:, :, : cache.length], x.values[:, :, : cache.length]) for x in cache.layers]


@pytest.mark.parametrize("name", [*tiny.FAST, *tiny.FALLBACK])
def test_committed_rows_are_those_of_a_fresh_prefill(name):
    """Fault reports 26-32: whatever was rejected, the cache holds what plain decoding would have written."""
    target = wrap(tiny.shared(name))
    prompt = prompt_of(2)
    sequence, _ = started(target, prompt)
    dice = random.Random(3)
    for step in range(3):
        tree = random_tree(sequence.root, step, paths=5, depth=6)
        if target.info.chains_only:
            tree = tree.take(torch.tensor(tree.path(len(tree) - 1)).numpy())
        target.verify(sequence, tree)
        nodes = tree.path(dice.randrange(len(tree)))
        accepted = tree.tokens[nodes[1:]].tolist()
        target.commit(sequence, nodes)
        sequence.commit(Verification(tuple(nodes), (*accepted, 40 + step)))
    fresh = Sequence(sequence.ids[:-1].tolist(), StopRule(frozenset(), 5))
    target.prefill(fresh, Needs())
    assert target._caches[id(sequence)].length == target._caches[id(fresh)].length == sequence.committed
    for mine, theirs in zip(cached_rows(target, sequence), cached_rows(target, fresh), strict=True):
        for got, want in zip(mine, theirs, strict=True):
            assert (got - want).abs().max() < 1e-5 * want.abs().max().clamp_min(1.0)


@pytest.mark.parametrize("name", ["llama", "gemma3_window4", "qwen2_window4", "gpt2", "bloom"])
@pytest.mark.parametrize("chunk", [1, 5, 18])
def test_a_prompt_in_chunks_is_the_prompt_in_one(name, chunk, monkeypatch):
    target = wrap(tiny.shared(name))
    needs = Needs(frozenset({0, 1}), 7)
    prompt = prompt_of(4, 9)
    _, whole = started(target, prompt, needs)
    monkeypatch.setattr("echodraft.targets.huggingface.target.PREFILL_CHUNK", chunk)
    _, parts = started(target, prompt, needs)
    assert list(parts.positions) == list(whole.positions)
    assert (parts.logits - whole.logits).abs().max() < 1e-4 * whole.logits.abs().max()
    for layer in (0, 1):
        assert torch.allclose(parts.states[layer], whole.states[layer], rtol=1e-4, atol=1e-4)


def test_a_prompt_of_more_rows_than_are_folded(monkeypatch):
    """Over FOLDED_ROWS keys are expanded instead; both ways give the same."""
    model = tiny.llama(max_position_embeddings=512)
    target = wrap(model)
    prompt = prompt_of(5, 150, 1)
    _, rows = started(target, prompt)
    assert torch.allclose(rows.logits[-1], fresh_logits(model, prompt)[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*tiny.FAST, *tiny.FALLBACK])
def test_captured_states_are_the_outputs_of_the_blocks(name):
    model = tiny.shared(name)
    target = wrap(model)
    layers = frozenset(range(target.info.num_layers - 1))  # after the last one comes a norm in theirs
    prompt = prompt_of(6)
    sequence, rows = started(target, prompt, Needs(layers))
    tree = merge(sequence.root, [Path([5, 6, 7], [0.9] * 3, "chain")])
    verified = target.verify(sequence, tree)
    ids = [*prompt, *tree.tokens.tolist()]
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True
        ).hidden_states
    for layer in layers:
        want = theirs[layer + 1][0]
        assert rows.states[layer].shape == (len(prompt), target.info.width)
        assert torch.allclose(rows.states[layer], want[: len(prompt)], rtol=1e-3, atol=1e-3)
        assert torch.allclose(verified.states[layer], want[len(prompt) :], rtol=1e-3, atol=1e-3)


def test_prompt_logits_are_of_the_last_occurrences_of_the_most_frequent_tokens():
    target = wrap(tiny.shared("llama"))
    prompt = [7, 8, 7, 9, 7, 8, 4]
    _, rows = started(target, prompt, Needs(prompt_logits=2))
    assert list(rows.positions) == [4, 5, 6]
    want = fresh_logits(tiny.shared("llama"), prompt)[[4, 5, 6]]
    assert (rows.logits - want).abs().max() < 1e-4 * want.abs().max()


def test_progress_of_a_long_prompt_is_reported(monkeypatch):
    monkeypatch.setattr("echodraft.targets.huggingface.target.PREFILL_CHUNK", 4)
    seen: list[tuple[str, int, int]] = []
    sequence = Sequence(prompt_of(1, 10, 1), StopRule(frozenset(), 5))
    wrap(tiny.shared("llama")).prefill(sequence, Needs(), lambda *step: seen.append(step))
    assert seen == [("prefill", 4, 10), ("prefill", 8, 10), ("prefill", 10, 10)]


# --- caches ----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(1, 12), st.integers(0, 3))
def test_both_caches_gather_rows_as_the_definition_says(seed, committed, new, room):
    dice = random.Random(seed)
    nodes = [0, *sorted(dice.sample(range(1, new), dice.randint(0, new - 1)))]
    rows = torch.arange(committed + new, dtype=torch.float32)[None, None, :, None].repeat(1, 2, 1, 3)
    for cache in (Arena(2, committed + room), PlainRows()):
        for layer in range(2):
            if committed:
                cache.update(rows[:, :, :committed], -rows[:, :, :committed], layer)
        cache.keep(range(committed))
        for layer in range(2):
            keys, _ = cache.update(rows[:, :, committed:], -rows[:, :, committed:], layer)
            assert keys.shape[2] == committed + new
        cache.keep(nodes)
        want = gather_slow(list(range(committed + new)), committed, nodes)
        assert cache.length == len(want)
        layers: list[Any] = list(cache.layers)
        for part in layers:
            assert part.keys[0, 1, : cache.length, 2].tolist() == want
            assert (-part.values[0, 0, : cache.length, 0]).tolist() == want


def test_an_arena_grows_and_keeps_what_is_committed(monkeypatch):
    monkeypatch.setattr("echodraft.targets.huggingface.target.HEADROOM", 1)
    monkeypatch.setattr("echodraft.targets.huggingface.arena.CHUNK", 3)
    model = tiny.shared("gemma3_window4")
    target = wrap(model)
    plain = run(target, prompt_of(7)).ids
    seen: set[int] = set()
    keep = Arena.keep

    def watch(self: Arena, nodes: Any) -> None:
        seen.add(self.capacity)
        keep(self, nodes)

    monkeypatch.setattr(Arena, "keep", watch)
    assert run(target, prompt_of(7), RandomTree(text=plain)).ids == plain
    assert len(seen) > 3, "it never grew"


def test_an_arena_never_takes_the_models_maximum_up_front():
    model = tiny.llama(max_position_embeddings=1 << 20)
    target = wrap(model)
    sequence, _ = started(target, prompt_of(8), room=100_000)
    cache: Any = target._caches[id(sequence)]
    assert cache.capacity < 1000


def test_rows_that_do_not_matter_cannot_poison_others():
    """Masked rows of an arena are zeros, not whatever memory held: 0 times NaN is NaN."""
    cache = Arena(1, 8)
    cache.update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4), 0)
    layer: Any = cache.layers[0]
    assert torch.isfinite(layer.keys).all()


def test_release_may_come_twice_and_frees_the_cache():
    target = wrap(tiny.shared("llama"))
    sequence, _ = started(target, prompt_of(1))
    target.release(sequence)
    target.release(sequence)
    assert not target._caches
    assert not target._needs


# --- masks -----------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    st.integers(0, 10),
    st.integers(1, 9),
    st.sampled_from([None, 1, 2, 4, 8]),
    st.booleans(),
    st.integers(0, 999),
)
def test_what_a_row_sees_is_what_the_definition_says(committed, rows, window, chain, seed):
    dice = random.Random(seed)
    parents = [-1, *(node if chain else dice.randrange(node + 1) for node in range(rows - 1))]
    depths = [0] * rows
    for node in range(1, rows):
        depths[node] = depths[parents[node]] + 1
    columns = (np.zeros(rows, dtype=np.int64), np.array(parents), np.array(depths))
    tree = DraftTree(*columns, np.ones(rows), ("x",) * rows)
    ancestors = None if chain else torch.from_numpy(tree.ancestor_mask())
    mask = RowMask(committed, torch.tensor(depths), ancestors)
    want = visible_slow(committed, depths, parents, window)
    assert mask.visible(window).tolist() == want
    bias = mask.bias(window, torch.float32)
    assert (bias == 0).tolist() == want if bias is not None else all(all(line) for line in want)
    assert mask.positions.tolist() == [[committed + depth for depth in depths]]


@pytest.mark.parametrize("extra", [{"softcap": 5.0}, {"s_aux": torch.zeros(2)}, {"row_mask": None}])
def test_attention_refuses_what_it_does_not_implement(extra):
    states = torch.zeros(1, 2, 1, 4)
    arguments: dict[str, Any] = {"row_mask": RowMask(0, torch.zeros(1, dtype=torch.int64), None)} | extra
    with pytest.raises(ValueError, match="row mask"):
        attend(nn.Identity(), states, states, states, None, **arguments)


# --- the caller's model ----------------------------------------------------------------------------


def fingerprint(model: PreTrainedModel) -> dict[str, Any]:
    """All of a model that a caller could see changed."""
    state = hashlib.sha256()
    for name, tensor in [*model.state_dict().items(), *model.named_buffers()]:
        state.update(name.encode())
        state.update(tensor.contiguous().numpy().tobytes())
    return {
        "weights": state.hexdigest(),
        "attention": [
            getattr(getattr(m, "config", None), "_attn_implementation", None) for m in model.modules()
        ],
        "config": model.config.to_json_string(),
        "generation": model.generation_config.to_json_string() if model.generation_config else None,
        "training": [m.training for m in model.modules()],
        "hooks": [
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
            for m in model.modules()
        ],
        "grad": [p.requires_grad for p in model.parameters()],
        "classes": [type(m) for m in model.modules()],
    }


@pytest.mark.parametrize("name", ["llama", "gemma3_window4", "gpt2", "bloom", "gemma2_softcap"])
def test_the_callers_model_is_as_it_was(name):
    model = (tiny.FAST | tiny.FALLBACK)[name]()
    before = fingerprint(model)
    target = wrap(model)
    plain = run(target, prompt_of(1)).ids
    run(target, prompt_of(1), RandomTree(text=plain))
    target.time_forward(8, CONTEXT)
    target.time_forward(16, FAR_CONTEXT)
    assert fingerprint(model) == before


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_calibration_leaves_moving_rope_alone(rope_type):
    """A forward beyond the model's positions changed the frequencies kept in its rotary embedding."""
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 2.0}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "original_max_position_embeddings": 64}
    model = tiny.llama(rope_parameters=rope)
    before = fingerprint(model)
    wrap(model).time_forward(16, FAR_CONTEXT)
    assert fingerprint(model) == before


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_callers_model_is_as_it_was_after_an_error_inside_a_forward(name):
    model = (tiny.FAST | tiny.FALLBACK)[name]()
    target = wrap(model)
    before = fingerprint(model)
    plain = run(target, prompt_of(1)).ids
    state = SimpleNamespace(calls=0)

    def explode(*_: Any) -> None:
        state.calls += 1
        if state.calls > 4:
            raise ZeroDivisionError

    assert target._blocks is not None
    handle = target._blocks[1].register_forward_hook(explode)
    with pytest.raises(ZeroDivisionError):
        run(target, prompt_of(1), Oracle(text=plain, k=2))
    handle.remove()
    assert fingerprint(model) == before
    assert not target._caches
    assert run(target, prompt_of(1), Oracle(text=plain, k=2)).ids == plain


class LowRank(nn.Module):
    """An adapter around a linear layer, as peft adds one; it counts its calls."""

    def __init__(self, inner: nn.Module, width: int, out: int) -> None:
        super().__init__()
        self.inner = inner
        generator = torch.Generator().manual_seed(0)
        self.down = nn.Parameter(torch.randn(width, 2, generator=generator))
        self.up = nn.Parameter(torch.randn(2, out, generator=generator))

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) + x @ self.down @ self.up


@pytest.mark.parametrize("name", ["llama", "mistral_window4"])
def test_adapters_and_hooks_of_the_caller_keep_working(name):
    """Fault report 98 (vLLM#4872): a LoRA-wrapped layer takes part in prefill and in every draft."""
    model: Any = (tiny.FAST | tiny.FALLBACK)[name]()
    without = run(wrap(model), prompt_of(1)).ids
    attention = model.model.layers[1].self_attn
    attention.q_proj = LowRank(attention.q_proj, 32, 32)
    model.model.layers[0].mlp.register_forward_hook(lambda module, args, output: output * 1.5)
    ids = torch.tensor([prompt_of(1)])
    want = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)[
        0, 16:
    ]
    target = wrap(model)
    for drafter in (
        None,
        Oracle(text=want.tolist(), k=3),
        Prefix(text=want.tolist()),
        RandomTree(text=want.tolist()),
    ):
        assert run(target, prompt_of(1), drafter).ids == want.tolist()
    assert want.tolist() != without, "the adapter changed nothing"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_threads_on_one_model_do_not_corrupt_each_other(name):
    """Hooks and the attention function of one thread's forward reached into another's."""
    model = (tiny.FAST | tiny.FALLBACK)[name]()
    before = fingerprint(model)
    want = run(wrap(model), prompt_of(1)).ids
    wrong: list[Any] = []

    def work(seed: int) -> None:
        target = wrap(model)
        for turn in range(3):
            found: Any = None
            try:
                found = run(target, prompt_of(1), RandomTree(Needs(frozenset({0})), want, seed + turn)).ids
            finally:
                if found != want:
                    wrong.append(found)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert fingerprint(model) == before


# --- refusals --------------------------------------------------------------------------------------

RECURRENT: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    "mamba2": {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "state_size": 4,
               "n_groups": 1},
    "rwkv": {"hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16},
    "recurrent_gemma": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "lru_width": 16},
    "lfm2": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "layer_types": ["conv", "full_attention"]},
    "qwen3_next": {"hidden_size": 32, "num_hidden_layers": 2, "num_experts": 2, "head_dim": 16,
                   "layer_types": ["linear_attention", "full_attention"]},
}  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_and_hybrid_models_are_refused_by_name_before_any_forward(name):
    """Fault report 26 (mlx-lm PR#1109): rejected drafts stayed in the state, silently."""
    config = AutoConfig.for_model(name, vocab_size=260, **RECURRENT[name])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)

    def forbidden(*args: Any, **keywords: Any) -> Any:
        raise AssertionError("a forward ran")

    model.forward = forbidden
    with pytest.raises(UnsupportedTarget, match=f"{type(model).__name__} has layers that cannot drop"):
        wrap(model.eval())


NOT_CAUSAL: dict[str, tuple[Callable[[], Any], str]] = {
    "headless": (lambda: tf.LlamaModel(tf.LlamaConfig(**tiny.SIZES)), "no language-model head"),
    "classifier": (
        lambda: tf.LlamaForSequenceClassification(tf.LlamaConfig(**tiny.SIZES)), "no language-model head"
    ),
    "encoder": (
        lambda: tf.BertLMHeadModel(tf.BertConfig(**tiny.SPLIT | {"pad_token_id": 0})), "is an encoder"
    ),
    "encoder_decoder": (
        lambda: tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=64, d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8)
        ),
        "encoder-decoder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_CAUSAL)
def test_what_is_no_causal_model_is_refused(name):
    make, why = NOT_CAUSAL[name]
    with pytest.raises(ModelNotUsable, match=why):
        wrap(make().eval())


def test_a_model_that_reads_both_ways_is_refused_by_what_it_does():
    """No config says so here: without our mask the model gives other logits."""
    model: Any = tiny.build(tf.GPTNeoXConfig(**tiny.SPLIT))
    for layer in model.gpt_neox.layers:
        layer.attention.is_causal = False
    own = model.forward

    @functools.wraps(own)
    def both_ways(input_ids: Tensor, attention_mask: Any = None, **rest: Any) -> Any:
        if attention_mask is None:
            attention_mask = torch.zeros(1, 1, input_ids.shape[1], input_ids.shape[1])
        return own(input_ids=input_ids, attention_mask=attention_mask, **rest)

    model.forward = both_ways
    with pytest.raises(ModelNotUsable, match="does not decode from left to right"):
        wrap(model)


def test_a_model_in_training_mode_is_refused():
    model = tiny.llama()
    target = wrap(model)
    model.train()
    for attempt in (
        lambda: wrap(model),
        lambda: run(target, prompt_of(1)),
        lambda: wrap(tiny.gpt2().train()),
    ):
        with pytest.raises(ModelNotUsable, match=r"model.eval\(\)"):
            attempt()


def test_a_context_that_cannot_fit_is_refused_before_any_forward(monkeypatch):
    target = wrap(tiny.llama(max_position_embeddings=1 << 30))
    monkeypatch.setattr("echodraft.targets.huggingface.target._free_memory", lambda device: 1 << 20)
    with pytest.raises(
        OutOfMemory, match=r"a context of 1,000,016 tokens needs 0\.\d GiB .* lower max_new_tokens"
    ):
        run(target, prompt_of(1), limit=1_000_000)
    assert not target._caches


# --- the latency timer -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gemma3_window4", "gpt2", "opt", "gpt_neo", "bloom", "phi3"])
def test_calibration_stays_inside_the_models_positions(name):
    """GPT-2 has 1,024 learned positions and the far point of the curve lies at 1,280: an IndexError."""
    target = wrap(tiny.shared(name))
    assert target.info.context_limit in (tiny.LIMIT, 1 << 20)
    for rows, context in ((1, CONTEXT), (64, CONTEXT), (16, FAR_CONTEXT)):
        assert target.time_forward(rows, context) > 0
    small = tiny.gpt2(n_positions=32)
    assert wrap(small).time_forward(64, CONTEXT) > 0


def test_calibrating_the_plain_cache_does_not_forward_its_context_each_time():
    model = tiny.shared("gpt2")
    target = wrap(model)
    assert isinstance(target, PlainCacheTarget)
    rows: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda module, args, keywords: rows.append(keywords["input_ids"].shape[1]), with_kwargs=True
    )
    target.time_forward(4, 100)
    handle.remove()
    assert rows == [1, 4]


@pytest.mark.parametrize("name", DRAFTERS)
def test_two_engines_on_one_model_share_nothing_but_the_model(name):
    model = tiny.shared("gemma3_window8")
    one, two = wrap(model), wrap(model)
    plain = run(one, prompt_of(2)).ids
    assert run(two, prompt_of(2), DRAFTERS[name](plain)).ids == plain
    assert not one._caches
    assert not two._caches
