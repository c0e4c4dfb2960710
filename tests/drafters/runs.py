"""Runs of drafters on scripted targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import TargetInfo
from echodraft.decoding.loop import decode
from echodraft.decoding.sequence import Sequence
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.verification import GreedyVerifier
from echodraft.drafters.base import BaseDrafter, DraftContext
from echodraft.drafters.priors import load_priors
from echodraft.drafters.registry import build
from echodraft.policies.cost_model import FixedBudget
from echodraft.targets.fake import ScriptedTarget

LAYERS = 8
INFO = TargetInfo("made", 1000, 8, LAYERS, 1 << 20, frozenset(), "made")


def context(**changes: Any) -> DraftContext:
    """A context with the shipped priors and weights."""
    return DraftContext(INFO, AcceptanceTable(load_priors()), **changes)


def sequence_of(ids: list[int], new: int = 64) -> Sequence:
    """A sequence whose root is the last of `ids`."""
    return Sequence(ids, StopRule(frozenset(), new))


def run(
    drafter: str | BaseDrafter[Any],
    prompt: list[int],
    script: list[int],
    options: Mapping[str, object] | None = None,
    *,
    min_value: float = 0.02,
    **target: Any,
) -> tuple[list[int], Statistics, ScriptedTarget]:
    """Decode `script` after `prompt`; the output, its statistics and the target."""
    model = ScriptedTarget(script, num_layers=LAYERS, **target)
    table = AcceptanceTable(load_priors())
    if isinstance(drafter, str):
        drafter = build(drafter, DraftContext(model.info, table), options)
    sequence = sequence_of(prompt, len(script))
    statistics = Statistics()
    budget = FixedBudget(table, 64, min_value)
    for _ in decode(model, drafter, budget, GreedyVerifier(), sequence, statistics):
        pass
    return sequence.output, statistics, model


def every_layer(states: np.ndarray) -> dict[int, np.ndarray]:
    """The same states for whatever layer is asked for."""
    return dict.fromkeys(range(LAYERS), states)


def slot_states(slots: list[int], width: int = 64, seed: int = 0) -> np.ndarray:
    """States that name the slot that comes next: equal slots have nearly equal states."""
    generator = np.random.default_rng(seed)
    names = generator.standard_normal((max(slots) + 2, width)).astype(np.float32)
    rows = np.stack([names[slot] for slot in slots[1:]] + [names[-1]])
    return (rows + 0.2 * generator.standard_normal(rows.shape)).astype(np.float32)
