"""echodraft: large language models answer several times faster, without changing a token.

    >>> from echodraft import Engine
    >>> engine = Engine.from_pretrained()            # or a hub id, a folder, a GGUF file
    >>> result = engine.generate("Correct the spelling: Teh cat sat onn the mat.")
    >>> result.text, result.statistics.mat

Public names: `Engine`, `DraftOptions`, `LoadOptions`, `Result`, `Stream`, `Statistics`, `LatencyCurve`,
and the errors below `EchodraftError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from echodraft.errors import (
    EchodraftError,
    InvalidRequest,
    ModelNotUsable,
    OutOfMemory,
    PromptTooLong,
    UnknownDrafter,
    UnsupportedTarget,
)

if TYPE_CHECKING:
    from echodraft.decoding.statistics import Statistics
    from echodraft.engine import DraftOptions, Engine, Result, Stream
    from echodraft.policies.cost_model import LatencyCurve
    from echodraft.targets.huggingface.loading import LoadOptions

__version__ = "0.1.0"

__all__ = [
    "DraftOptions",
    "EchodraftError",
    "Engine",
    "InvalidRequest",
    "LatencyCurve",
    "LoadOptions",
    "ModelNotUsable",
    "OutOfMemory",
    "PromptTooLong",
    "Result",
    "Statistics",
    "Stream",
    "UnknownDrafter",
    "UnsupportedTarget",
    "__version__",
]

# Imported when first used: torch and transformers take seconds, and `echodraft --help` needs neither.
_HOMES = {
    "DraftOptions": "echodraft.engine",
    "Engine": "echodraft.engine",
    "LatencyCurve": "echodraft.policies.cost_model",
    "LoadOptions": "echodraft.targets.huggingface.loading",
    "Result": "echodraft.engine",
    "Statistics": "echodraft.decoding.statistics",
    "Stream": "echodraft.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'echodraft' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
