"""The four seams of the decode loop: target, drafter, budget policy, verifier.

`loop.decode` knows only these contracts. Rows of logits and states are torch tensors on the target's
device; tokens and trees are numpy arrays and ints on the host. d is the width of the hidden states, V
the vocabulary size, B the number of nodes of a draft tree, n the number of committed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path

__all__ = ["Budget", "Drafter", "Needs", "Progress", "Rows", "Target", "TargetInfo", "Verifier"]

Progress = Callable[[str, int, int], None]  # what, done, total


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What a target says of itself; constant for its life.

    context_limit: the most tokens a sequence may have, prompt and output together.
    draft_limit:   positions from here on take no drafts (RoPE variants that change with the longest
                   position of a call), or None.
    chains_only:   whether trees with siblings are refused (verify then gets chains only).
    fingerprint:   names weights, dtype, device and threads: what a measured latency curve belongs to.
    """

    name: str
    vocabulary_size: int
    width: int
    num_layers: int
    context_limit: int
    end_tokens: frozenset[int]
    fingerprint: str
    draft_limit: int | None = None
    chains_only: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter wants from every forward besides its tokens.

    layers:         blocks (counted from 0) whose output states it reads.
    prompt_logits:  how many prompt positions it wants logits of, at most (0: none). The target gives the
                    last occurrence of each distinct token, most frequent tokens first.
    """

    layers: frozenset[int] = frozenset()
    prompt_logits: int = 0

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.layers | other.layers, max(self.prompt_logits, other.prompt_logits))


@dataclass(slots=True)
class Rows:
    """What a forward gives back: logits and states, row i for node i of the tree.

    logits:    [R, V] in the target's dtype. After `verify` R = B. After `prefill` the rows are those
               of `positions`, the last of which is the last prompt token.
    states:    block -> [R', d] outputs of the blocks asked for, in the target's dtype; R' = B after
               `verify`, R' = prompt length after `prefill`.
    positions: prompt positions of the logits' rows (prefill only).

    Views into the target's buffers: valid until its next call on this sequence.
    """

    logits: Tensor
    states: Mapping[int, Tensor] = field(default_factory=dict)
    positions: SequenceOf[int] = ()

    def argmax(self, row: int) -> int:
        """The id with the highest logit of a row; the lowest id on a tie."""
        return int(self.logits[row].argmax())

    def top(self, row_ids: SequenceOf[int], k: int) -> Tensor:
        """Int64 [len(row_ids), k] on the host: ids of the k highest logits of each row, best first."""
        return top_ids(self.logits[list(row_ids)], k).cpu()


def top_ids(logits: Tensor, k: int, block: int = 128) -> Tensor:
    """Ids of the `k` highest logits of every row [R, V] -> int64 [R, k], best first.

    The k best lie in the k blocks with the highest maxima, so only those are sorted: 10 to 30 times
    faster than a sort of the whole row at V = 152k on a CPU.
    """
    rows, vocabulary = logits.shape
    if vocabulary <= 4 * k * block:
        return logits.topk(min(k, vocabulary), dim=-1).indices
    whole = vocabulary // block * block
    blocks = logits[:, :whole].view(rows, -1, block)
    chosen = blocks.amax(-1).topk(k, dim=-1).indices
    ids = (chosen[:, :, None] * block + torch.arange(block, device=logits.device)).view(rows, -1)
    rest = torch.arange(whole, vocabulary, device=logits.device).expand(rows, -1)
    ids = torch.cat([ids, rest], dim=1)
    best = logits.gather(1, ids).topk(k, dim=-1).indices
    return ids.gather(1, best)


class Target(Protocol):
    """The model whose output is wanted. Holds the cache rows of every sequence it was given."""

    info: TargetInfo

    def prefill(self, sequence: Sequence, needs: Needs, progress: Progress | None = None) -> Rows:
        """Forward the whole prompt; afterwards n = prompt length.

        raises: OutOfMemory before anything is computed if the cache cannot be had.
        """

    def verify(self, sequence: Sequence, tree: DraftTree) -> Rows:
        """Forward every node of `tree` once, each seeing the context and its own ancestors.

        tree:    B >= 1 nodes, node 0 the root; n + max depth < info.context_limit.
        changes: writes B cache rows after row n-1; `commit` must follow before the next `verify`.
        """

    def commit(self, sequence: Sequence, nodes: SequenceOf[int]) -> None:
        """Keep the cache rows of `nodes` (a path from the root, increasing) and drop the others."""

    def release(self, sequence: Sequence) -> None:
        """Free what is held for `sequence`; safe to call twice, and after an error or an abort."""


class Drafter(Protocol):
    """Guesses what comes after the root. One instance serves one sequence from `start` to its end."""

    @property
    def needs(self) -> Needs:
        """What it reads of every forward."""

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Read the prefill. Called once, after the first token was decided: `sequence.root` is set."""

    def propose(self, sequence: Sequence) -> list[Path]:
        """Weighted paths that may follow `sequence.root`, best guess first.

        Finding nothing is an answer (an empty list); a draft is never padded. Not called in every
        step: a gate may skip it, and `observe` comes all the same.
        """

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Learn from a forward. `sequence` has `result` committed; rows are those of `tree`."""


class Budget(Protocol):
    """Decides how many nodes are verified. One instance serves one sequence."""

    def wants_drafts(self, sequence: Sequence) -> bool:
        """The gate: whether drafting is worth its own time in this step."""

    def select(self, tree: DraftTree, sequence: Sequence) -> DraftTree:
        """Cut the merged draft to what is worth verifying; the root alone (B = 0 drafts) is an answer."""

    def observe(self, tree: DraftTree, paths: SequenceOf[Path], result: Verification) -> None:
        """Learn from a step: what was verified, all that was proposed, and what came out."""


class Verifier(Protocol):
    """Decides tokens from logits. The only place where tokens, stops and limits are decided."""

    def first(self, rows: Rows, sequence: Sequence) -> Verification:
        """Decide the first token from the last row of the prefill."""

    def accept(self, tree: DraftTree, rows: Rows, sequence: Sequence) -> Verification:
        """Walk from the root as far as the target agrees; stops and limits apply to each token in order."""
