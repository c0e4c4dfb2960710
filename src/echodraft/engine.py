"""Engine: a model and a drafter, ready to generate.

Puts the parts together: target, drafter, budget policy, verifier, text. One engine serves one request at
a time; every request starts with a fresh drafter and fresh calibration (*cold*), so a request's result
does not depend on those before it.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import Budget, Progress
from echodraft.decoding.loop import decode
from echodraft.decoding.sequence import FinishReason, Sequence
from echodraft.decoding.statistics import Statistics
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.verification import GreedyVerifier
from echodraft.drafters.base import DraftContext
from echodraft.drafters.priors import load_priors
from echodraft.drafters.registry import build, configure
from echodraft.errors import InvalidRequest, PromptTooLong
from echodraft.policies.cost_model import CostModel, FixedBudget, LatencyCurve
from echodraft.policies.latency import load_curve, measure, save_curve
from echodraft.targets.huggingface.architectures import wrap
from echodraft.targets.huggingface.loading import LoadOptions, cache_folder, load_model
from echodraft.targets.huggingface.target import HuggingFaceTarget
from echodraft.targets.huggingface.text import (
    Message,
    TextStream,
    encode_chat,
    encode_raw,
)
from echodraft.targets.huggingface.text import (
    decode as decode_text,
)

__all__ = ["DraftOptions", "Engine", "Result", "Stream"]


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """How to draft; None of it changes the text.

    drafter:                registry name ("auto", "srsd", ..., "none" for plain decoding).
    options:                options of the drafter; unknown names are errors.
    num_speculative_tokens: the most drafted nodes per forward; 0 is plain decoding.
    budget:                 "cost_model" (what pays on this machine) or "fixed" (up to the maximum).
    min_value:              with a fixed budget, nodes less likely to be accepted than this are left out.
    """

    drafter: str = "auto"
    options: Mapping[str, object] = field(default_factory=dict)
    num_speculative_tokens: int = 64
    budget: Literal["cost_model", "fixed"] = "cost_model"
    min_value: float = 0.0

    def __post_init__(self) -> None:
        _whole("num_speculative_tokens", self.num_speculative_tokens, 0)
        if not isinstance(self.drafter, str):
            raise InvalidRequest(f"drafter must be a drafter's name, got {self.drafter!r}")
        if not isinstance(self.options, Mapping):
            raise InvalidRequest(f"options must be a mapping of the drafter's options, got {self.options!r}")
        if self.budget not in ("cost_model", "fixed"):
            raise InvalidRequest(f"no budget {self.budget!r}; known: cost_model, fixed")
        if not isinstance(self.min_value, int | float) or not 0 <= self.min_value <= 1:
            raise InvalidRequest(f"min_value must be between 0 and 1, got {self.min_value!r}")
        configure(self.drafter, self.options)


@dataclass(frozen=True, slots=True)
class Result:
    """What one request gave.

    token_ids:     generated ids, an end token included; `text` leaves special tokens out.
    sources:       for each id the source that drafted it, or "root" if the target itself gave it.
    seconds:       wall time of prefill and decoding; `prefill_seconds` is part of it.
    statistics:    counters (docs/statistics.md).
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    prompt_tokens: int
    seconds: float
    statistics: Statistics
    sources: list[str]

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def prefill_seconds(self) -> float:
        return self.statistics.seconds["prefill"]

    def as_dict(self) -> dict[str, Any]:
        """The result as plain JSON types: the object that `echodraft generate --json` prints."""
        stats = self.statistics.as_dict()
        stats.pop("prefill_seconds")
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": self.seconds,
            "prefill_seconds": self.prefill_seconds,
            "stats": stats,
        }


class Stream(Iterator[str]):
    """Text pieces as they are decided; `result` is there at the end, also after `close`.

    Joined, the pieces are `result.text`. Leaving the loop early, `close` or an interrupt ends the
    request: what was generated stays, with finish reason "abort".
    """

    def __init__(
        self, tokenizer: Tokenizer, steps: Iterator[Any], sequence: Sequence, statistics: Statistics
    ):
        self._tokenizer = tokenizer
        self._text = TextStream(tokenizer)
        self._steps = steps
        self._sequence = sequence
        self._statistics = statistics
        self._seconds = 0.0  # inside this iterator: what the caller does between the pieces is not ours
        self._finished = False

    def __next__(self) -> str:
        begin = time.perf_counter()
        try:
            return self._next_piece()
        finally:
            self._seconds += time.perf_counter() - begin

    def _next_piece(self) -> str:
        for step in self._steps:
            if piece := self._text.push(step.tokens):
                return piece
        if not self._finished:
            self._finished = True
            if piece := self._text.finish():
                return piece
        raise StopIteration

    def close(self) -> None:
        """End the request now; the target's cache rows are freed."""
        getattr(self._steps, "close", lambda: None)()
        if self._sequence.finish_reason is None:
            self._sequence.finish_reason = "abort"

    @property
    def token_ids(self) -> list[int]:
        """Ids decided so far."""
        return self._sequence.output

    @property
    def sources(self) -> list[str]:
        """For each id decided so far, the source that drafted it, or "root"."""
        return self._statistics.sources[: self._sequence.output_length]

    @property
    def result(self) -> Result:
        """The result; call it when the stream has ended or was closed."""
        return Result(
            text=decode_text(self._tokenizer, self._sequence.output),
            token_ids=self._sequence.output,
            finish_reason=self._sequence.finish_reason or "abort",
            prompt_tokens=self._sequence.prompt_length,
            seconds=self._seconds,
            statistics=self._statistics,
            sources=self.sources,
        )


class Engine:
    """Generates text with a transformers model, several tokens per forward.

    model, tokenizer: as transformers loaded them; the model is not modified.
    drafting:         defaults for all requests.
    curve:            latency curve of this model on this machine; measured at first need otherwise (about
                      three seconds for a small model) and kept on disk.
    recalibrate:      measure anew even if a curve is kept.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer,
        *,
        drafting: DraftOptions | None = None,
        name: str = "",
        curve: LatencyCurve | None = None,
        recalibrate: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.target: HuggingFaceTarget = wrap(model, name)
        self.drafting = drafting or DraftOptions()
        self._curve = curve
        self._priors = load_priors()
        self._recalibrate = recalibrate
        self._progress = progress

    @classmethod
    def from_pretrained(
        cls,
        model: str | None = None,
        *,
        load: LoadOptions | None = None,
        drafting: DraftOptions | None = None,
        recalibrate: bool = False,
        progress: Progress | None = None,
    ) -> Engine:
        """Load a model (hub id, folder or GGUF file; None: the default one) and make an engine of it.

        raises: ModelNotUsable, OutOfMemory, InvalidRequest: one sentence, before anything large is read.
        """
        loaded, tokenizer = load_model(model, load, progress)
        return cls(
            loaded, tokenizer, drafting=drafting, name=model or "", recalibrate=recalibrate, progress=progress
        )

    def generate(self, prompt: str | None = None, **request: Any) -> Result:
        """Generate to the end; arguments as for `stream`."""
        stream = self.stream(prompt, **request)
        for _ in stream:
            pass
        return stream.result

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: SequenceOf[Message] | None = None,
        ids: SequenceOf[int] | None = None,
        system: str | None = None,
        raw: bool = False,
        max_new_tokens: int = 256,
        stop_token_ids: SequenceOf[int] = (),
        ignore_eos: bool = False,
        drafting: DraftOptions | None = None,
        **overrides: Any,
    ) -> Stream:
        """Start a request; iterate over the text pieces, then read `result`.

        prompt:         text: a user's message in the chat template, or as it stands with raw=True.
        messages:       a conversation instead: [{"role": ..., "content": ...}, ...].
        ids:            prompt ids instead.
        system:         a system message before the prompt.
        max_new_tokens: the most tokens to generate; the context limit may end it sooner.
        stop_token_ids: ids that end the output besides the model's own end tokens.
        ignore_eos:     whether the model's own end tokens do not end it.
        drafting:       how to draft, instead of the engine's default; single fields of it
                        (drafter, options, num_speculative_tokens, budget, min_value) may be given directly.

        raises: InvalidRequest, PromptTooLong, OutOfMemory; nothing was computed then.
        """
        chosen = _overridden(drafting or self.drafting, overrides)
        _whole("max_new_tokens", max_new_tokens, 0)
        prompt_ids = self.encode(prompt, messages=messages, ids=ids, system=system, raw=raw)
        own = frozenset() if ignore_eos else self.target.info.end_tokens
        stop_ids = self._check_ids(stop_token_ids, "stop_token_ids")
        room = self.target.info.context_limit - len(prompt_ids)
        stop = StopRule(own | frozenset(stop_ids), min(max_new_tokens, room))
        sequence, statistics = Sequence(prompt_ids, stop), Statistics()
        table = AcceptanceTable(self._priors)
        drafter = build(chosen.drafter, DraftContext(self.target.info, table), chosen.options)
        steps = decode(
            self.target,
            drafter,
            self._budget(chosen, table),
            GreedyVerifier(),
            sequence,
            statistics,
            self._progress,
        )
        return Stream(self.tokenizer, steps, sequence, statistics)

    def encode(
        self,
        prompt: str | None = None,
        *,
        messages: SequenceOf[Message] | None = None,
        ids: SequenceOf[int] | None = None,
        system: str | None = None,
        raw: bool = False,
    ) -> list[int]:
        """Prompt ids of a request; arguments as for `stream`.

        raises: InvalidRequest for none or several prompts, an empty one, ids out of range; PromptTooLong.
        """
        if sum(x is not None for x in (prompt, messages, ids)) != 1:
            raise InvalidRequest("give exactly one of prompt, messages and ids")
        if system is not None and (raw or prompt is None):
            raise InvalidRequest(
                "system goes with a prompt in the chat template, not with raw, messages or ids"
            )
        if prompt is not None:
            _check_text(prompt)
        if ids is not None:
            prompt_ids = self._check_ids(ids, "ids")
        elif prompt is not None and raw:
            prompt_ids = encode_raw(self.tokenizer, prompt)
        else:
            if prompt is not None and not prompt.strip():
                raise InvalidRequest("the prompt is empty; say what to do")
            before = [{"role": "system", "content": system}] if system is not None else []
            chat = (
                [*before, {"role": "user", "content": prompt}] if prompt is not None else list(messages or [])
            )
            if not chat:
                raise InvalidRequest("messages is empty; give at least one message")
            prompt_ids = encode_chat(self.tokenizer, chat)
        if not prompt_ids:
            raise InvalidRequest("the prompt is empty; say what to do")
        limit = self.target.info.context_limit
        if len(prompt_ids) >= limit:
            raise PromptTooLong(
                f"the prompt has {len(prompt_ids):,} tokens and the model's context ends at {limit:,}; "
                "shorten it"
            )
        return prompt_ids

    @property
    def curve(self) -> LatencyCurve:
        """The target's latency curve: given, kept on disk, or measured now."""
        if self._curve is None:
            folder, fingerprint = cache_folder() / "latency", self.target.info.fingerprint
            kept = None if self._recalibrate else load_curve(folder, fingerprint)
            self._curve = kept or measure(self.target.time_forward, report=self._progress)
            if kept is None:
                save_curve(folder, fingerprint, self._curve)
        return self._curve

    def _budget(self, chosen: DraftOptions, table: AcceptanceTable) -> Budget:
        limit = 0 if chosen.drafter == "none" else chosen.num_speculative_tokens
        if chosen.budget == "fixed" or limit == 0:
            return FixedBudget(table, limit, chosen.min_value)
        return CostModel(self.curve, table, limit)

    def _check_ids(self, ids: SequenceOf[int], what: str) -> list[int]:
        """The ids as plain ints; those of numpy and torch are welcome."""
        size = self.target.info.vocabulary_size
        if not isinstance(ids, Iterable):
            raise InvalidRequest(f"{what} must be a list of token ids, got {ids!r}")
        checked = [_as_int(token) for token in ids]
        for token, given in zip(checked, ids, strict=True):
            if token is None or not 0 <= token < size:
                raise InvalidRequest(f"{what}: {given!r} is no token id of this model (0 to {size - 1})")
        return [token for token in checked if token is not None]


def _overridden(drafting: DraftOptions, overrides: Mapping[str, Any]) -> DraftOptions:
    if not isinstance(drafting, DraftOptions):
        raise InvalidRequest(f"drafting must be DraftOptions, got {drafting!r}")
    known = list(asdict(drafting))
    for name in overrides:
        if name not in known:
            raise InvalidRequest(f"unknown option {name!r}; known: {', '.join(known)}")
    return replace(drafting, **overrides) if overrides else drafting


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or math.isnan(value):
        raise InvalidRequest(f"{name} must be a whole number of at least {least}, got {value!r}")


def _as_int(token: Any) -> int | None:
    try:
        return None if isinstance(token, bool) else operator.index(token)
    except TypeError:
        return None


def _check_text(prompt: object) -> None:
    if not isinstance(prompt, str):
        raise InvalidRequest(f"prompt must be a text, got {prompt!r}")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # arguments of a process that are not UTF-8 arrive like this
        broken = prompt[error.start : error.end]
        raise InvalidRequest(
            f"the prompt is no valid text: {broken!r} at character {error.start}; give it as UTF-8"
        ) from None
