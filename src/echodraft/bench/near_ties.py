"""Near ties: whether two greedy outputs differ only because of rounding.

Kernels round differently with the number of rows, so two runs of one model may part where its two best
tokens are (almost) equally good. Such a place is told from a fault by scoring the common prefix once more
in fp64: if the two tokens are the best two and less than `GAP` apart, it is a *near tie*; anything else is
a *different* output. (Design decision 6: equal, or a near tie that is listed.)

Surprise: transformers computes norms, rotary angles and softmax in fp32 whatever the model's dtype; here
they are computed in fp64 too, by answering every request for fp32 with fp64 while the copy runs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

__all__ = ["GAP", "Difference", "NearTieChecker", "first_difference"]

GAP = 1e-4  # logits closer than this may change places in fp32 (design decision 6)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two outputs part, and why.

    position: index into the outputs of the first token that differs.
    tokens:   the two tokens there; None for an output that has ended.
    best:     the two best tokens in fp64, best first.
    gap:      logit of the best minus that of the second, in fp64.
    margin:   largest logit in fp64 minus the lower one of the two tokens: what rounding had to bridge.
    """

    position: int
    tokens: tuple[int | None, int | None]
    best: tuple[int, int]
    gap: float
    margin: float | None
    verdict: Literal["near tie", "different"]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


class NearTieChecker:
    """Scores prefixes in fp64. Copies the model at the first check and keeps the copy for the next ones."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._exact: PreTrainedModel | None = None

    def check(self, prompt: SequenceOf[int], a: SequenceOf[int], b: SequenceOf[int]) -> Difference | None:
        """The first difference of outputs `a` and `b` after `prompt`, judged; None if they are equal."""
        position = first_difference(a, b)
        if position is None:
            return None
        logits = self._scores([*prompt, *a[:position]])
        top = logits.topk(2)
        best = (int(top.indices[0]), int(top.indices[1]))
        gap = float(top.values[0] - top.values[1])
        tokens = (
            a[position] if position < len(a) else None,
            b[position] if position < len(b) else None,
        )
        known = [token for token in tokens if token is not None]
        margin = float(logits.max() - logits[known].min()) if known else None
        near = gap < GAP and set(tokens) == set(best)
        return Difference(position, tokens, best, gap, margin, "near tie" if near else "different")

    @torch.no_grad()
    def _scores(self, ids: list[int]) -> Tensor:
        """Fp64 logits [V] of the token after `ids`."""
        if self._exact is None:
            self._exact = copy.deepcopy(self._model).eval()
            torch.nn.Module.to(self._exact, dtype=torch.float64)
        tokens = torch.tensor([ids], device=self._exact.device)
        with _Double():
            output = self._exact(input_ids=tokens, use_cache=False, logits_to_keep=1)
        return torch.as_tensor(output.logits[0, -1]).double()


class _Double(TorchFunctionMode):
    """Inside the block, torch gives fp64 where fp32 is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {key: _doubled(value) for key, value in (kwargs or {}).items()}
        if func is Tensor.float:
            func = Tensor.double
        return func(*(_doubled(value) for value in args), **kwargs)


def _doubled(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def first_difference(a: SequenceOf[int], b: SequenceOf[int]) -> int | None:
    """Index of the first token in which two outputs differ (one may just be longer), or None."""
    for position, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return position
    return None if len(a) == len(b) else min(len(a), len(b))
