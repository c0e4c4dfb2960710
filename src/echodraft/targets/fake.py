"""Fake targets: scripted text instead of a model, for tests of drafters and for replay.

`ScriptedTarget` answers with a given list of ids whatever is drafted, as a greedy target would. Given
the hidden states and likely successors of a real run it replays that run: the drafts of any drafter can
then be judged without a model (exactly, for greedy decoding).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from echodraft.decoding.interfaces import Needs, Progress, Rows, TargetInfo
from echodraft.decoding.sequence import Sequence
from echodraft.decoding.tree import DraftTree

__all__ = ["ScriptedRows", "ScriptedTarget"]


@dataclass(slots=True)
class ScriptedRows(Rows):
    """Rows that know their best tokens and have no logits. best: int64 [R, k], best first."""

    best: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 1), dtype=np.int64))

    def argmax(self, row: int) -> int:
        """The scripted token."""
        return int(self.best[row, 0])

    def top(self, row_ids: SequenceOf[int], k: int) -> Tensor:
        """The best `k` tokens known (fewer if the script has fewer; -1 where nothing is known)."""
        return torch.from_numpy(self.best[list(row_ids), :k])


class ScriptedTarget:
    """A target that emits `script` after the prompt, then token 0 forever.

    script:     ids to emit.
    states:     block -> [prompt + script, d] states to return; zeros of width 8 where none are given.
    successors: int [prompt + script, k], likely next tokens of each position, best first.
    num_layers, vocabulary_size, end_tokens, context_limit, draft_limit: as in `TargetInfo`.

    `forwards` counts calls of `verify`, `rows` their nodes; `live` the sequences not released.
    """

    def __init__(
        self,
        script: SequenceOf[int],
        *,
        states: Mapping[int, NDArray[np.floating]] | None = None,
        successors: NDArray[np.integer] | None = None,
        num_layers: int = 4,
        vocabulary_size: int = 1 << 18,
        end_tokens: SequenceOf[int] = (),
        context_limit: int = 1 << 20,
        draft_limit: int | None = None,
    ) -> None:
        self._script = list(script)
        self._states = states or {}
        self._successors = successors
        self._known: dict[int, NDArray[np.int64]] = {}
        self._needs = Needs()
        self.forwards = 0
        self.rows = 0
        self.live: set[int] = set()
        self.info = TargetInfo(
            name="scripted",
            vocabulary_size=vocabulary_size,
            width=8,
            num_layers=num_layers,
            context_limit=context_limit,
            end_tokens=frozenset(end_tokens),
            fingerprint="scripted",
            draft_limit=draft_limit,
        )

    def prefill(self, sequence: Sequence, needs: Needs, progress: Progress | None = None) -> ScriptedRows:
        """Forward the prompt."""
        self.live.add(id(sequence))
        self._needs = needs
        length = sequence.prompt_length
        seeds = (
            _seed_positions(sequence.ids.tolist(), needs.prompt_logits)
            if self._successors is not None
            else []
        )
        chosen = [*seeds, length - 1]
        best = np.stack([self._best(position, sequence) for position in chosen])
        return ScriptedRows(torch.empty(0), self._state_rows(needs, np.arange(length)), chosen, best)

    def verify(self, sequence: Sequence, tree: DraftTree) -> ScriptedRows:
        """Predict the script's token at nodes on the script, a wrong one elsewhere."""
        self.forwards += 1
        self.rows += len(tree)
        on_script = [True]
        for token, parent, depth in zip(
            tree.tokens[1:].tolist(), tree.parents[1:].tolist(), tree.depths[1:].tolist(), strict=True
        ):
            position = sequence.committed + depth
            on_script.append(on_script[parent] and token == self._token(position, sequence))
        best = np.stack(
            [
                self._best(sequence.committed + depth, sequence) if right else self._stale(token)
                for token, depth, right in zip(
                    tree.tokens.tolist(), tree.depths.tolist(), on_script, strict=True
                )
            ]
        )
        states = self._state_rows(self._needs, sequence.committed + tree.depths)
        return ScriptedRows(torch.empty(0), states, (), best)

    def commit(self, sequence: Sequence, nodes: SequenceOf[int]) -> None:
        """Nothing is cached."""

    def release(self, sequence: Sequence) -> None:
        """Forget the sequence."""
        self.live.discard(id(sequence))

    def _token(self, position: int, sequence: Sequence) -> int:
        index = position - sequence.prompt_length
        if index < 0:
            return int(sequence.ids[position])
        return self._script[index] if index < len(self._script) else 0

    def _best(self, position: int, sequence: Sequence) -> NDArray[np.int64]:
        """Best tokens after `position`: the script's first, then the likely successors given."""
        token = self._token(position + 1, sequence) if position + 1 >= sequence.prompt_length else None
        if self._successors is None:
            return np.array([-1 if token is None else token])
        last = len(self._successors) - 1
        row: NDArray[np.int64] = self._successors[min(position, last)].astype(np.int64)
        if token is not None:
            row = np.array([token, *row[row != token]][: len(row)], dtype=np.int64)
        self._known[self._token(position, sequence)] = row
        return row

    def _stale(self, token: int) -> NDArray[np.int64]:
        """Off the script nothing is known: the successors that are known already, and never a match."""
        width = 1 if self._successors is None else self._successors.shape[1]
        row = self._known.get(token)
        return np.full(width, -1, dtype=np.int64) if row is None else row

    def _state_rows(self, needs: Needs, positions: NDArray[np.int64]) -> dict[int, Tensor]:
        rows = {}
        for layer in needs.layers:
            if layer in self._states:
                states = self._states[layer]
                chosen = states[np.minimum(positions, len(states) - 1)].astype(np.float32)
                rows[layer] = torch.from_numpy(chosen)
            else:
                rows[layer] = torch.zeros(len(positions), 8)
        return rows


def _seed_positions(prompt: list[int], count: int) -> list[int]:
    """The last position of each distinct token but the final one, most frequent tokens first."""
    last = {token: position for position, token in enumerate(prompt[:-1])}
    often = Counter(prompt[:-1]).most_common(count)
    return [last[token] for token, _ in often]
