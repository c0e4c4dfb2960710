"""State capture: the outputs of chosen blocks, copied as a forward passes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

__all__ = ["blocks_of", "capture"]


def blocks_of(model: PreTrainedModel) -> nn.ModuleList | None:
    """The list of decoder blocks, or None where the model has none of its depth."""
    depth = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    found = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
    return found[0] if found else None


@contextmanager
def capture(blocks: nn.ModuleList | None, layers: frozenset[int]) -> Iterator[dict[int, Tensor]]:
    """Collect block -> [rows, d] (outputs before the next block's norm) of the forward in the block.

    The hooks are gone afterwards, whatever happened.
    """
    states: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            states[layer] = hidden.detach()[0]

        return hook

    handles = [blocks[layer].register_forward_hook(keep(layer)) for layer in layers] if blocks else []
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
