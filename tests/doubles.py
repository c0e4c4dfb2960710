"""Doubles: drafters that know the text, drafters that are wrong, a target that counts, a plain run.

Names follow `../shared/fault-reports.md`: ORACLE(k), WRONG(k), PREFIX(j, k).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import Budget, Drafter, Needs, Rows, Target
from echodraft.decoding.loop import decode
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import DraftTree, Path
from echodraft.decoding.verification import GreedyVerifier
from echodraft.policies.cost_model import FixedBudget

VOCABULARY = 250  # ids that doubles draft are below this: byte tokens of the tiny tokenizer


@dataclass
class Silent:
    """Drafts nothing: plain decoding."""

    needs: Needs = field(default_factory=Needs)

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Nothing to read."""

    def propose(self, sequence: Sequence) -> list[Path]:
        return []

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Nothing to learn."""


@dataclass
class Knowing(Silent):
    """A drafter that knows the plain output `text` of the request."""

    text: SequenceOf[int] = ()

    def ahead(self, sequence: Sequence, count: int) -> list[int]:
        """The next `count` ids after the root, as far as they are known."""
        return list(self.text[sequence.output_length : sequence.output_length + count])


@dataclass
class Oracle(Knowing):
    """ORACLE(k): the next k ids, all right."""

    k: int = 4

    def propose(self, sequence: Sequence) -> list[Path]:
        right = self.ahead(sequence, self.k)
        return [Path(right, [0.9] * len(right), "oracle")] if right else []


@dataclass
class Wrong(Knowing):
    """WRONG(k): k ids, all wrong."""

    k: int = 4

    def propose(self, sequence: Sequence) -> list[Path]:
        wrong = [(token + 1) % VOCABULARY for token in self.ahead(sequence, self.k)]
        return [Path(wrong, [0.9] * len(wrong), "wrong")] if wrong else []


@dataclass
class Prefix(Knowing):
    """PREFIX(j, k): j right ids, then wrong ones up to k."""

    j: int = 2
    k: int = 4

    def propose(self, sequence: Sequence) -> list[Path]:
        ahead = self.ahead(sequence, self.k)
        draft = [*ahead[: self.j], *((token + 1) % VOCABULARY for token in ahead[self.j :])]
        return [Path(draft, [0.9] * len(draft), "prefix")] if draft else []


@dataclass
class SecondSibling(Knowing):
    """A tree whose right path is the second child everywhere it branches, behind a likelier wrong one."""

    k: int = 4

    def propose(self, sequence: Sequence) -> list[Path]:
        right = self.ahead(sequence, self.k)
        paths = []
        for depth, token in enumerate(right):
            wrong = [*right[:depth], (token + 1) % VOCABULARY, (token + 2) % VOCABULARY]
            paths.append(Path(wrong, [0.5] * len(wrong), "wrong"))
        return [*paths, Path(right, [0.4] * len(right), "right")] if right else []


@dataclass
class RandomTree(Knowing):
    """Random branching paths, some of them right for a while; wider and deeper than small windows."""

    seed: int = 0
    paths: int = 6
    depth: int = 9

    def propose(self, sequence: Sequence) -> list[Path]:
        dice = random.Random(self.seed * 10_007 + sequence.output_length)
        right = self.ahead(sequence, self.depth)
        found = []
        for number in range(dice.randint(0, self.paths)):
            tokens = right[: dice.randint(0, len(right))]
            tokens += [
                dice.randrange(VOCABULARY) for _ in range(dice.randint(1, self.depth - len(tokens) or 1))
            ]
            rates = [dice.uniform(0.2, 1.0) for _ in tokens]
            origin = dice.choice([None, number])
            found.append(Path(tokens, rates, f"random{number % 2}", origin))
        return found


@dataclass
class Fan(Knowing):
    """Many siblings at every depth, the right one among the last: far more rows than positions."""

    width: int = 12
    depth: int = 3

    def propose(self, sequence: Sequence) -> list[Path]:
        right = self.ahead(sequence, self.depth)
        paths = []
        for depth, token in enumerate(right):
            for other in range(1, self.width):
                tokens = [*right[:depth], (token + other) % VOCABULARY]
                paths.append(Path(tokens, [0.9] * depth + [0.3], "wrong"))
        return [*paths, Path(right, [0.9] * len(right), "right")] if right else []


MakeDrafter = Callable[[SequenceOf[int]], Drafter]

DRAFTERS: dict[str, MakeDrafter] = {
    "oracle1": lambda text: Oracle(text=text, k=1),
    "oracle4": lambda text: Oracle(text=text, k=4),
    "oracle8": lambda text: Oracle(text=text, k=8),
    "wrong4": lambda text: Wrong(text=text, k=4),
    "prefix2of4": lambda text: Prefix(text=text, j=2, k=4),
    "prefix2of6": lambda text: Prefix(text=text, j=2, k=6),
    "second_sibling": lambda text: SecondSibling(text=text, k=6),
    "random_tree": lambda text: RandomTree(text=text),
    "fan": lambda text: Fan(text=text),
}


@dataclass
class Run:
    """What one decoding gave."""

    ids: list[int]
    reason: str | None
    statistics: Statistics
    steps: list[Verification]

    @property
    def outcome(self) -> tuple[list[int], str | None]:
        """What drafts must never change."""
        return self.ids, self.reason


def run(
    target: Target,
    prompt: SequenceOf[int],
    drafter: Drafter | None = None,
    *,
    limit: int = 40,
    end: SequenceOf[int] = (),
    budget: Budget | None = None,
) -> Run:
    """Decode to the end; the context limit is applied as the engine does."""
    room = min(limit, target.info.context_limit - len(prompt))
    sequence = Sequence(prompt, StopRule(frozenset(end), room))
    statistics = Statistics()
    steps = decode(
        target,
        drafter or Silent(),
        budget or FixedBudget(AcceptanceTable(), 256),
        GreedyVerifier(),
        sequence,
        statistics,
    )
    results = list(steps)
    return Run(sequence.output, sequence.finish_reason, statistics, results)


def prompt_of(seed: int, length: int = 8, repeats: int = 2) -> list[int]:
    """A random prompt with a repetition in it."""
    dice = random.Random(seed)
    return [dice.randrange(3, VOCABULARY) for _ in range(length)] * repeats
