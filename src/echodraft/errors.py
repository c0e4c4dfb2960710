"""The errors a user can meet, as one small tree.

    EchodraftError
      InvalidRequest      an option or prompt is wrong; nothing was started
        UnknownDrafter    no drafter, policy or option of that name
        PromptTooLong     the prompt leaves no room in the context
      ModelNotUsable      the model cannot be loaded or used; nothing was started
        UnsupportedTarget the architecture cannot be decoded losslessly here
      OutOfMemory         there is not enough memory; says how much is missing

Every message is one sentence that names the wrong value and says what to do. The command line prints it
after ``error:`` and exits with 2; a library user catches `EchodraftError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "EchodraftError",
    "InvalidRequest",
    "ModelNotUsable",
    "OutOfMemory",
    "PromptTooLong",
    "UnknownDrafter",
    "UnsupportedTarget",
    "did_you_mean",
]


class EchodraftError(Exception):
    """Base of everything echodraft raises for a reason the caller can do something about."""


class InvalidRequest(EchodraftError, ValueError):
    """An option, a prompt or a combination of them is wrong; nothing was started."""


class UnknownDrafter(InvalidRequest):
    """No drafter (or option of a drafter) has this name; the message lists those that exist."""


class PromptTooLong(InvalidRequest):
    """The prompt leaves no room for a single new token in the target's context."""


class ModelNotUsable(EchodraftError):
    """The model cannot be found, loaded or used as a causal language model."""


class UnsupportedTarget(ModelNotUsable):
    """The architecture cannot drop rejected tokens, so drafts on it would not be lossless."""


class OutOfMemory(EchodraftError, MemoryError):
    """Less memory is free than the model or the context needs."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
