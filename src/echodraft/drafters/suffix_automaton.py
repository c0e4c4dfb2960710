"""Suffix automaton: copy what followed the longest earlier match of the present text's end.

An online suffix automaton of prompt and output finds the longest suffix that occurred before in
amortised constant time per token, and with it the *most recent* occurrence (edits refer to the current
version of a text, so the latest is the better guess; SAM Decoding takes the earliest). The draft grows
with the match. Source: SAM Decoding (Hu et al., ACL 2025), dynamic part, with the most recent end kept.

Trap: the query must come before the token is inserted, or the match is the suffix itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from echodraft.decoding.interfaces import Rows
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path
from echodraft.drafters.base import BaseDrafter, DraftContext, at_least, option
from echodraft.drafters.copying import CopyRates, copy_end

__all__ = ["SuffixAutomaton", "SuffixAutomatonConfig", "SuffixAutomatonDrafter"]


class SuffixAutomaton:
    """Suffix automaton of the tokens pushed so far, with the latest end of every state.

    After `push(t)`, `match` is the length of the longest suffix (t included) that occurred before, at most
    `longest`, and `match_end` the position of the last token of its most recent earlier occurrence (-1 if
    none). So of matches longer than `longest` the most recent one counts, not the longest.
    At most 2 states per token. Amortised O(1) per token except in long runs of one repeated token,
    where keeping the latest ends costs a walk of the run's length.
    """

    def __init__(self, longest: int = 1 << 30) -> None:
        self._longest = longest
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._latest = [-1]
        self._last = 0
        self._cursor = 0
        self._matched = 0  # length of the match at the cursor, not limited
        self._size = 0
        self.match = 0
        self.match_end = -1

    def push(self, token: int) -> None:
        """Append a token; O(1) amortised."""
        self._follow(token)
        self._insert(token)
        self._size += 1

    def _follow(self, token: int) -> None:
        state, match = self._cursor, self._matched
        while state and token not in self._next[state]:
            state = self._link[state]
            match = self._length[state]
        if token in self._next[state]:
            state, match = self._next[state][token], match + 1
        else:
            match = 0
        self._cursor, self._matched = state, match
        if match > self._longest:
            match = self._longest
            while self._length[self._link[state]] >= match:
                state = self._link[state]
        self.match = match
        self.match_end = self._latest[state] if match else -1

    def _insert(self, token: int) -> None:
        new = self._state({}, self._length[self._last] + 1, -1, self._size)
        state = self._last
        while state != -1 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        self._link[new] = self._suffix_of(state, token)
        self._last = new
        state = self._link[new]
        while state > 0:
            self._latest[state] = self._size
            state = self._link[state]

    def _suffix_of(self, state: int, token: int) -> int:
        """The state that the new one links to; splits one in two where it must."""
        if state == -1:
            return 0
        other = self._next[state][token]
        if self._length[state] + 1 == self._length[other]:
            return other
        clone = self._state(
            dict(self._next[other]), self._length[state] + 1, self._link[other], self._latest[other]
        )
        while state != -1 and self._next[state].get(token) == other:
            self._next[state][token] = clone
            state = self._link[state]
        self._link[other] = clone
        if self._cursor == other and self._matched <= self._length[clone]:
            self._cursor = clone
        return clone

    def _state(self, edges: dict[int, int], length: int, link: int, latest: int) -> int:
        self._next.append(edges)
        self._length.append(length)
        self._link.append(link)
        self._latest.append(latest)
        return len(self._length) - 1


@dataclass(frozen=True, slots=True)
class SuffixAutomatonConfig:
    """Options of `suffix_automaton`; a draft has min(max_length, base_length + per_match * m) tokens."""

    max_length: int = option(64, "longest draft, in tokens")
    base_length: int = option(64, "length of a draft after a match of no tokens")
    per_match: int = option(0, "tokens more per token matched")
    min_match: int = option(1, "shortest match to draft from")
    longest_match: int = option(64, "longer matches count as equal: the most recent one is copied")
    loops: bool = option(True, "let a text that repeats itself go on past the end of the context")

    def __post_init__(self) -> None:
        at_least(self, max_length=1, base_length=0, per_match=0, min_match=1, longest_match=1)


class SuffixAutomatonDrafter(BaseDrafter[SuffixAutomatonConfig]):
    """A chain copied from the most recent occurrence of the longest match."""

    name = "suffix_automaton"
    reference = "SAM Decoding (ACL 2025), dynamic part, most recent occurrence"
    Config = SuffixAutomatonConfig

    def __init__(self, config: SuffixAutomatonConfig, context: DraftContext) -> None:
        super().__init__(config, context)
        self._automaton = SuffixAutomaton(config.longest_match)
        self._rates = CopyRates(self.table, "suffix")
        self._pushed = 0

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Read prompt and first token."""
        self._catch_up(sequence)

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Read the tokens just decided."""
        self._catch_up(sequence)

    def propose(self, sequence: Sequence) -> list[Path]:
        """One chain, or nothing."""
        config = self.config
        match, end = self._automaton.match, self._automaton.match_end
        length = min(config.max_length, config.base_length + config.per_match * match)
        if match < config.min_match or not length:
            return []
        run = copy_end(sequence.ids, end + 1, length, match if config.loops else 0)
        rates, bins = self._rates.run(match, len(run))
        return [Path(run, rates, self.name, end + 1, bins)]

    def _catch_up(self, sequence: Sequence) -> None:
        for token in sequence.ids[self._pushed :].tolist():
            self._automaton.push(token)
        self._pushed = len(sequence.ids)
