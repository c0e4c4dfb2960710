"""Verification: which drafted nodes the target agrees with.

A verifier walks down from the root: at each node it decides the target's own next token from that
node's logits; if a child carries this token the walk goes on there, else the token is the next root.
One decision per visited node, so any draft tree gives exactly the output of plain decoding.
"""

from __future__ import annotations

from echodraft.decoding.interfaces import Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree

__all__ = ["GreedyVerifier"]


class GreedyVerifier:
    """Greedy decoding: the target's next token is the one with the highest logit (lowest id on a tie)."""

    def first(self, rows: Rows, sequence: Sequence) -> Verification:
        """Decide the first token from the last row of the prefill."""
        tokens, reason = sequence.stop.cut([rows.argmax(-1)], 0)
        return Verification((), tuple(tokens), reason)

    def accept(self, tree: DraftTree, rows: Rows, sequence: Sequence) -> Verification:
        """Walk the tree; see `interfaces.Verifier`."""
        nodes, decided = [0], []
        while True:
            token = rows.argmax(nodes[-1])
            decided.append(token)
            child = tree.children.get((nodes[-1], token))
            if child is None:
                break
            nodes.append(child)
        tokens, reason = sequence.stop.cut(decided, sequence.output_length)
        # A stop inside the draft: its token was forwarded as node len(tokens), later ones are dropped.
        return Verification(tuple(nodes[: len(tokens) + 1]), tuple(tokens), reason)
