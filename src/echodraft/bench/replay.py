"""Replay: any drafter judged on a recorded greedy answer, without the model.

Greedy decoding decides the same tokens whatever is drafted, so a transcript tells exactly which drafts
would have been accepted. Drafters that read only text need the transcript alone; those that read hidden
states or runner-up tokens need a *recording*, one teacher-forced pass of the model over it. (What replay
cannot know are the logits of rejected nodes: recycling learns a little less than it would live.)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import Budget
from echodraft.decoding.loop import decode
from echodraft.decoding.sequence import Sequence
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import Bin
from echodraft.decoding.verification import GreedyVerifier
from echodraft.drafters.base import BaseDrafter, DraftContext
from echodraft.drafters.copy_model import load_weights
from echodraft.policies.cost_model import FixedBudget
from echodraft.targets.fake import ScriptedTarget

__all__ = [
    "EDIT", "CertainTable", "Tally", "Transcript", "in_tune_half", "load_recordings", "load_transcripts",
    "replay", "save_recording",
]  # fmt: skip

EDIT = ("editeval", "json_reformat", "humanevalfix_python", "doc_typo_commits")

BEYOND = -1  # what the scripted target says after the answer: no draft ever has it
LONGEST = 65  # tokens that a forward decides at most

BudgetFactory = Callable[[AcceptanceTable], Budget]
DrafterFactory = Callable[[DraftContext], BaseDrafter[Any]]


@dataclass(frozen=True, slots=True)
class Transcript:
    """One prompt and its greedy answer, with a recording or without.

    states:     block -> [prompt + output, d] hidden states (empty: not recorded).
    successors: int [prompt + output, k], most likely next tokens of each position, or None.
    """

    set: str
    prompt_id: str
    prompt_ids: NDArray[np.int64]
    output_ids: NDArray[np.int64]
    num_layers: int = 4
    states: Mapping[int, NDArray[np.floating]] = field(default_factory=dict)
    successors: NDArray[np.integer] | None = None


def load_transcripts(file: Path) -> list[Transcript]:
    """Read JSON lines with `set`, `prompt_id`, `prompt_ids` and `output_ids`."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [
        Transcript(row["set"], row["prompt_id"], _ids(row["prompt_ids"]), _ids(row["output_ids"]))
        for row in rows
    ]


def save_recording(file: Path, transcript: Transcript) -> None:
    """Keep a transcript with its states (as half floats) and successors."""
    states: dict[str, Any] = {
        f"h{block}": rows.astype(np.float16) for block, rows in transcript.states.items()
    }
    np.savez(
        file,
        set=transcript.set,
        pid=transcript.prompt_id,
        prompt=transcript.prompt_ids,
        output=transcript.output_ids,
        top=transcript.successors if transcript.successors is not None else np.zeros((0, 0), dtype=np.int32),
        num_layers=transcript.num_layers,
        **states,
    )


def load_recordings(folder: Path, *, num_layers: int | None = None) -> list[Transcript]:
    """Read what `save_recording` wrote; `num_layers` for recordings that do not say."""
    recordings = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as data:
            layers = int(data["num_layers"]) if "num_layers" in data.files else num_layers
            if layers is None:
                raise ValueError(f"{file} does not say how many layers its model has")
            states = {int(name[1:]): data[name] for name in data.files if name[0] == "h"}
            recordings.append(
                Transcript(
                    str(data["set"]), str(data["pid"]), _ids(data["prompt"]), _ids(data["output"]),
                    layers, states, data["top"],
                )
            )  # fmt: skip
    return recordings


def in_tune_half(prompt_id: str) -> bool:
    """Which half a prompt belongs to: priors are fitted on the tune half, figures come from the other."""
    return int(hashlib.sha256(prompt_id.encode()).hexdigest()[-1], 16) % 2 == 0


class CertainTable(AcceptanceTable):
    """Every draft is taken for certain: it is verified whole, whatever its length."""

    def rate(self, key: Bin) -> float:
        """One."""
        return 1.0


def replay(
    transcript: Transcript,
    make_drafter: DrafterFactory,
    *,
    table: AcceptanceTable | None = None,
    weights: Mapping[str, Any] | None = None,
    budget: BudgetFactory = lambda table: FixedBudget(table, 64, 0.02),
    max_new_tokens: int | None = None,
    count_last_root: bool = False,
) -> Statistics:
    """Decode the answer again with drafts.

    weights:         of the copy model; as shipped if None.
    max_new_tokens:  cut the answer.
    count_last_root: count the last forward as if the answer went on: with all nodes drafted, and with
                     the token it decides beyond the answer.
    """
    output = transcript.output_ids[:max_new_tokens].tolist()
    table = AcceptanceTable() if table is None else table
    target = ScriptedTarget(
        [*transcript.output_ids.tolist(), *[BEYOND] * LONGEST],
        states=_every_layer(transcript),
        successors=transcript.successors,
        num_layers=transcript.num_layers,
    )
    context = DraftContext(target.info, table, load_weights() if weights is None else weights)
    limit = len(output) + (LONGEST if count_last_root else 0)
    sequence = Sequence(transcript.prompt_ids.tolist(), StopRule(frozenset(), limit))
    statistics = Statistics()
    for _ in decode(target, make_drafter(context), budget(table), GreedyVerifier(), sequence, statistics):
        if sequence.output_length >= len(output):
            break
    if sequence.output[: len(output)] != output:
        raise AssertionError(f"the replay of {transcript.prompt_id} decided other tokens than its transcript")
    return statistics


class Tally:
    """Tokens, steps and nodes by set, and the figures made of them."""

    def __init__(self) -> None:
        self.sets: dict[str, list[int]] = {}
        self.seconds = 0.0

    def add(self, name: str, statistics: Statistics) -> None:
        """Count one replay."""
        counts = self.sets.setdefault(name, [0, 0, 0])
        for i, count in enumerate((statistics.tokens, statistics.steps, statistics.nodes)):
            counts[i] += count
        self.seconds += statistics.seconds["draft"] + statistics.seconds["commit"]

    def mat(self, sets: Iterable[str] | None = None) -> float:
        """Tokens per step, weighted by steps."""
        counts = self._of(sets)
        return sum(row[0] for row in counts) / max(sum(row[1] for row in counts), 1)

    def nodes(self, sets: Iterable[str] | None = None) -> float:
        """Drafted nodes per step."""
        counts = self._of(sets)
        return sum(row[2] for row in counts) / max(sum(row[1] for row in counts), 1)

    def geometric(self, sets: Iterable[str]) -> float:
        """Geometric mean of the MAT of each set there is."""
        logs = [math.log(row[0] / row[1]) for row in self._of(sets)]
        return math.exp(sum(logs) / len(logs)) if logs else 0.0

    def milliseconds(self) -> float:
        """Draft and commit time per step."""
        return 1e3 * self.seconds / max(sum(row[1] for row in self.sets.values()), 1)

    def _of(self, sets: Iterable[str] | None) -> list[list[int]]:
        names = self.sets if sets is None else [name for name in sets if name in self.sets]
        return [self.sets[name] for name in names if self.sets[name][1]]


def _every_layer(transcript: Transcript) -> dict[int, NDArray[np.floating]]:
    """Recorded states for every block: those of the nearest block recorded."""
    known = sorted(transcript.states)
    if not known:
        return {}
    return {
        block: transcript.states[min(known, key=lambda near: abs(near - block))]
        for block in range(transcript.num_layers)
    }


def _ids(ids: Any) -> NDArray[np.int64]:
    return np.asarray(ids, dtype=np.int64)
