"""Statistics: what decoding did, counted where it happens.

A *step* is one forward of a draft tree; the prefill is no step. MAT (mean accepted tokens) is the mean
number of tokens decided per step, the root's successor included: 1 for plain decoding. Nodes are drafted
nodes, the root excluded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from echodraft.decoding.sequence import Verification
from echodraft.decoding.tree import DraftTree

__all__ = ["Phase", "Statistics"]

Phase = Literal["prefill", "draft", "verify", "commit"]


class Statistics:
    """Counters of one request.

    steps, tokens:        forwards of draft trees, and tokens they decided.
    nodes:                drafted nodes verified.
    drafted_steps:        steps that verified at least one drafted node.
    drafted_by_source, accepted_by_source: drafted nodes verified / accepted, by source.
    drafted_by_depth, accepted_by_depth:   steps whose tree reached depth i + 1 / whose accepted path did.
    budgets:              how often each number of drafted nodes was chosen.
    sources:              for each decided token, the source that drafted it ("root" if none did).
    seconds:              wall time by phase.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.tokens = 0
        self.nodes = 0
        self.drafted_steps = 0
        self.drafted_by_source: Counter[str] = Counter()
        self.accepted_by_source: Counter[str] = Counter()
        self.drafted_by_depth: Counter[int] = Counter()
        self.accepted_by_depth: Counter[int] = Counter()
        self.budgets: Counter[int] = Counter()
        self.sources: list[str] = ["root"]
        self.seconds: dict[Phase, float] = {"prefill": 0.0, "draft": 0.0, "verify": 0.0, "commit": 0.0}

    @contextmanager
    def timed(self, phase: Phase) -> Iterator[None]:
        """Add the wall time of the block to `seconds[phase]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    def count(self, tree: DraftTree, result: Verification) -> None:
        """Count one step."""
        accepted = result.nodes[1:]
        self.steps += 1
        self.tokens += len(result.tokens)
        self.nodes += len(tree) - 1
        self.drafted_steps += len(tree) > 1
        self.budgets[len(tree) - 1] += 1
        self.drafted_by_source.update(tree.sources[1:])
        accepted_sources = [tree.sources[node] for node in accepted]
        self.accepted_by_source.update(accepted_sources)
        self.drafted_by_depth.update(range(int(tree.depths.max())))
        self.accepted_by_depth.update(range(len(accepted)))
        self.sources += accepted_sources
        self.sources += ["root"] * (len(result.tokens) - len(accepted))

    @property
    def mat(self) -> float:
        """Tokens per step; 0 before the first step."""
        return self.tokens / self.steps if self.steps else 0.0

    def as_dict(self) -> dict[str, object]:
        """The counters as plain JSON types; `acceptance_by_depth[i]` is that of depth i + 1."""
        depths = sorted(self.drafted_by_depth)
        return {
            "steps": self.steps,
            "mat": self.mat,
            "nodes": self.nodes,
            "accepted_by_source": dict(self.accepted_by_source),
            "drafted_by_source": dict(self.drafted_by_source),
            "acceptance_by_depth": [self.accepted_by_depth[d] / self.drafted_by_depth[d] for d in depths],
            "draft_seconds": self.seconds["draft"],
            "verify_seconds": self.seconds["verify"],
            "commit_seconds": self.seconds["commit"],
            "prefill_seconds": self.seconds["prefill"],
            "mean_budget": self.nodes / self.steps if self.steps else 0.0,
            "coverage": self.drafted_steps / self.steps if self.steps else 0.0,
            "budgets": {str(nodes): times for nodes, times in sorted(self.budgets.items())},
        }
