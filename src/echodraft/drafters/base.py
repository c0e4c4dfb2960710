"""The base of every drafter: a frozen config, what it is given, and the contract it keeps.

A drafter is one file with a config (a frozen dataclass whose fields are documented in its `Config.help`
metadata) and a class derived from `BaseDrafter`; one line in `registry` makes it known everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import Needs, Rows, TargetInfo
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.tree import DraftTree, Path
from echodraft.drafters.copy_model import Weights, load_weights
from echodraft.errors import InvalidRequest

__all__ = ["BaseDrafter", "DraftContext", "at_least", "option"]

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter is built with.

    info:    description of the target.
    table:   acceptance table of the request.
    weights: weights of the copy model by drafter name, as shipped unless others are being fitted.
    """

    info: TargetInfo
    table: AcceptanceTable
    weights: Mapping[str, Weights] = field(default_factory=load_weights)


def option(default: Any, help: str) -> Any:
    """A config field with its default and one line of help (shown by `echodraft drafters`)."""
    return field(default=default, metadata={"help": help})


def at_least(config: Any, **bounds: float) -> None:
    """Check that fields of a config are finite numbers of their type, not below their bounds.

    raises: InvalidRequest that names the first field that is not.
    """
    for item in fields(config):
        if item.name not in bounds:
            continue
        value, bound = getattr(config, item.name), bounds[item.name]
        whole = item.type in ("int", int)
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not number or not bound <= value < float("inf"):
            kind = "whole number" if whole else "number"
            raise InvalidRequest(f"{item.name} must be a {kind} of at least {bound:g}, got {value!r}")


class BaseDrafter(ABC, Generic[C]):
    """Contract: see `decoding.interfaces.Drafter`. One instance serves one sequence.

    name:      registry name.
    reference: paper or origin, for `echodraft drafters`.
    Config:    the frozen dataclass of its options.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    Config: ClassVar[type[Any]]

    def __init__(self, config: C, context: DraftContext) -> None:
        self.config = config
        self.info = context.info
        self.table = context.table

    @property
    def needs(self) -> Needs:
        """What it reads of a forward; nothing by default."""
        return Needs()

    def start(self, sequence: Sequence, rows: Rows) -> None:
        """Read the prefill; nothing by default."""

    @abstractmethod
    def propose(self, sequence: Sequence) -> list[Path]:
        """Weighted paths after the root; a draft is never padded."""

    def observe(self, sequence: Sequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        """Learn from a forward; nothing by default."""
