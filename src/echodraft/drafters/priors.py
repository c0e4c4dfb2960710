"""Priors: the acceptance rates every sequence starts from, fitted on real transcripts.

`priors.json` is made by `tools/fit_priors.py`; its header says from what. A key of the file is a bin
with its parts joined by slashes: ``A/0/3/5``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources

from echodraft.decoding.tree import Bin

__all__ = ["bin_of", "key_of", "load_priors"]


def load_priors() -> Mapping[Bin, float]:
    """Bin -> acceptance rate, as shipped. Reads the file anew: an engine keeps the answer."""
    text = resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")
    rates: dict[str, float] = json.loads(text)["rates"]
    return {bin_of(key): rate for key, rate in rates.items()}


def key_of(key: Bin) -> str:
    """The name of a bin in the file."""
    return "/".join(str(part) for part in key)


def bin_of(key: str) -> Bin:
    """The bin that a name in the file stands for."""
    return tuple(int(part) if part.isdigit() else part for part in key.split("/"))
