"""The decode loop: draft -> verify -> accept -> commit, on one page.

A language model yields one token per forward. Here each forward carries a *draft tree* of guesses
behind the *root* (the token that is already certain), and the target's own decisions pick the path it
agrees with. So every forward commits the root and the accepted guesses, and the output is exactly that
of plain decoding: a wrong guess costs its row and nothing else.

Vocabulary: docs/architecture.md. The contracts of what is passed in: `interfaces`.
"""

from __future__ import annotations

from collections.abc import Iterator

from echodraft.decoding.interfaces import Budget, Drafter, Progress, Target, Verifier
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.tree import likeliest_chain, merge

__all__ = ["decode"]


def decode(
    target: Target,
    drafter: Drafter,
    budget: Budget,
    verifier: Verifier,
    sequence: Sequence,
    statistics: Statistics,
    progress: Progress | None = None,
) -> Iterator[Verification]:
    """Yield one `Verification` per forward (the first one is the prefill's) until the sequence ends.

    Invariant at the top of the loop: tokens 0..n-1 are committed and have cache rows; `sequence.root`
    is token n and has neither a cache row nor a hidden state. Whoever stops reading early, closes the
    iterator or raises leaves the target without rows of this sequence.
    """
    try:
        if sequence.finish_reason is not None:  # nothing was asked for
            return
        yield _prefill(target, drafter, verifier, sequence, statistics, progress)

        while sequence.finish_reason is None:
            with statistics.timed("draft"):
                paths = drafter.propose(sequence) if budget.wants_drafts(sequence) else []
                draft = merge(sequence.root, paths, max_depth=_max_depth(target, sequence))
                if target.info.chains_only:
                    draft = likeliest_chain(draft)
                tree = budget.select(draft, sequence)

            with statistics.timed("verify"):
                rows = target.verify(sequence, tree)
                result = verifier.accept(tree, rows, sequence)

            with statistics.timed("commit"):
                target.commit(sequence, result.nodes)
                sequence.commit(result)
                budget.observe(tree, paths, result)
                drafter.observe(sequence, tree, rows, result)

            statistics.count(tree, result)
            yield result
    finally:
        target.release(sequence)


def _prefill(
    target: Target,
    drafter: Drafter,
    verifier: Verifier,
    sequence: Sequence,
    statistics: Statistics,
    progress: Progress | None,
) -> Verification:
    """Forward the prompt, decide the first token, and let the drafter read the prompt's rows."""
    with statistics.timed("prefill"):
        rows = target.prefill(sequence, drafter.needs, progress)
        result = verifier.first(rows, sequence)
        sequence.commit(result)
        if sequence.finish_reason is None:
            drafter.start(sequence, rows)
    return result


def _max_depth(target: Target, sequence: Sequence) -> int:
    """How deep a draft may go: not past the last token wanted, nor where the target takes no drafts."""
    depth = sequence.room - 1  # the forward itself decides one token after the deepest accepted node
    if target.info.draft_limit is not None:
        depth = min(depth, target.info.draft_limit - sequence.committed - 1)
    return max(depth, 0)
