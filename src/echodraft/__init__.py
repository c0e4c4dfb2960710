"""echodraft: large language models answer several times faster, without changing a token.

    >>> from echodraft import Engine
    >>> engine = Engine.from_pretrained()            # or a hub id, a folder, a GGUF file
    >>> result = engine.generate("Correct the spelling: Teh cat sat onn the mat.")
    >>> result.text, result.statistics.mat

Public names: `Engine`, `DraftOptions`, `LoadOptions`, `Result`, `Stream`, `Statistics`, `LatencyCurve`,
and the errors below `EchodraftError`.
"""

from echodraft.decoding.statistics import Statistics
from echodraft.engine import DraftOptions, Engine, Result, Stream
from echodraft.errors import (
    EchodraftError,
    InvalidRequest,
    ModelNotUsable,
    OutOfMemory,
    PromptTooLong,
    UnknownDrafter,
    UnsupportedTarget,
)
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
