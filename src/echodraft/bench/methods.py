"""Methods of a benchmark: what a name on the command line stands for.

``NAME[@label][:key=value,...]``, for example ``suffix_automaton@long:min_value=0.1,max_length=64``. NAME is
a drafter, `plain` (echodraft without drafts), or a peer of `peers`. Keys are fields of `DraftOptions`
(num_speculative_tokens, budget, min_value) or options of the drafter. Rows carry the label, or the whole
text where there is none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from echodraft.bench.peers import METHODS as PEERS
from echodraft.drafters.registry import DRAFTERS, parse_options
from echodraft.engine import DraftOptions
from echodraft.errors import InvalidRequest, UnknownDrafter, did_you_mean

__all__ = ["HF_PLAIN", "PLAIN", "Method", "parse_method", "split_methods"]

PLAIN, HF_PLAIN = "plain", "hf:plain"  # what the methods of either side are compared with
SETTINGS = ("num_speculative_tokens", "budget", "min_value")
OPTION = re.compile(r"\s*[\w.]+\s*=")


@dataclass(frozen=True, slots=True)
class Method:
    """name: what its rows carry. Either `drafting` is set (ours) or `peer` (a key of peers.METHODS)."""

    name: str
    drafting: DraftOptions | None = None
    peer: str | None = None

    @property
    def reference(self) -> str:
        """The method whose text it must give."""
        return HF_PLAIN if self.peer else PLAIN


def split_methods(text: str) -> list[str]:
    """Methods separated by commas; ``key=value`` pieces belong to the method before them."""
    methods: list[str] = []
    for piece in text.split(","):
        if OPTION.match(piece) and methods and ":" in methods[-1]:
            methods[-1] += f",{piece.strip()}"
        elif piece.strip():
            methods.append(piece.strip())
    return methods


def parse_method(text: str, defaults: DraftOptions) -> Method:
    """What `text` stands for; settings it does not name come from `defaults`.

    raises: InvalidRequest, which names what was wrong and what there is.
    """
    if text.partition("@")[0] in PEERS:
        return Method(text.partition("@")[2] or text, peer=text.partition("@")[0])
    head, _, settings = text.partition(":")
    name, _, label = head.partition("@")
    known = [PLAIN, *(drafter for drafter in DRAFTERS if drafter != "none"), *PEERS]
    if name not in known:
        raise UnknownDrafter(f"no method {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}")
    if name == PLAIN:
        if settings:
            raise InvalidRequest(f"the method {PLAIN!r} has no settings, got {settings!r}")
        return Method(label or PLAIN, DraftOptions(drafter="none"))
    return Method(label or text, _drafting(name, settings.split(",") if settings else [], defaults))


def _drafting(name: str, settings: SequenceOf[str], defaults: DraftOptions) -> DraftOptions:
    own: dict[str, str] = {}
    options: list[str] = []
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if equals and key in SETTINGS:
            own[key] = value
        else:
            options.append(setting)
    budget = own.get("budget", defaults.budget)
    if budget not in ("cost_model", "fixed"):
        raise InvalidRequest(f"no budget {budget!r}; known: cost_model, fixed")
    try:
        nodes = int(own.get("num_speculative_tokens", defaults.num_speculative_tokens))
        min_value = float(own.get("min_value", defaults.min_value))
    except ValueError as error:
        raise InvalidRequest(f"a setting of the method {name!r} is no number: {error}") from None
    return DraftOptions(
        drafter=name,
        options=dataclasses.asdict(parse_options(name, options)),
        num_speculative_tokens=nodes,
        budget="fixed" if budget == "fixed" else "cost_model",
        min_value=min_value,
    )
