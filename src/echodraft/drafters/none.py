"""None: drafts nothing, so every step is a plain one. The baseline, and the way to switch drafting off."""

from __future__ import annotations

from dataclasses import dataclass

from echodraft.decoding.sequence import Sequence
from echodraft.decoding.tree import Path
from echodraft.drafters.base import BaseDrafter

__all__ = ["NoDrafter", "NoDrafterConfig"]


@dataclass(frozen=True, slots=True)
class NoDrafterConfig:
    """`none` has no options."""


class NoDrafter(BaseDrafter[NoDrafterConfig]):
    """Proposes nothing and reads nothing."""

    name = "none"
    reference = "plain decoding"
    Config = NoDrafterConfig

    def propose(self, sequence: Sequence) -> list[Path]:
        """No paths."""
        return []
