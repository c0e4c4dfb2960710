"""Options that several commands share, named as the arguments of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from echodraft.targets.huggingface.loading import LoadOptions

__all__ = [
    "Budget",
    "Device",
    "DrafterName",
    "DrafterOptions",
    "Dtype",
    "MinValue",
    "Model",
    "NumSpeculativeTokens",
    "Offline",
    "Recalibrate",
    "Revision",
    "Threads",
    "TrustRemoteCode",
    "prepare",
]

Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Hub id, folder or .gguf file.",
        show_default="the model that comes with echodraft",
    ),
]
DrafterName = Annotated[
    str,
    typer.Option(metavar="NAME", help="Who drafts, see `echodraft drafters`; none decodes plainly."),
]
DrafterOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter-option", metavar="KEY=VALUE", help="Option of the drafter; may be given several times."
    ),
]
NumSpeculativeTokens = Annotated[
    int, typer.Option(min=0, metavar="N", help="The most tokens drafted per forward.")
]
Budget = Annotated[
    Literal["cost_model", "fixed"],
    typer.Option(help="Draft what pays on this machine, or always up to the maximum."),
]
MinValue = Annotated[
    float,
    typer.Option(metavar="P", help="With a fixed budget: leave out drafts less likely accepted than this."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Processor threads.", show_default="torch's choice"),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="DTYPE",
        help="float32, bfloat16 or float16; auto: float32 on a CPU, the checkpoint's own on a GPU.",
    ),
]
Device = Annotated[
    str, typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1 ...; auto: a GPU if there is one.")
]
Revision = Annotated[
    str | None, typer.Option(metavar="REVISION", help="Branch, tag or commit of a hub model.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is on this machine.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
]
Recalibrate = Annotated[
    bool,
    typer.Option(
        "--recalibrate", help="Measure the speed of this machine anew instead of using a kept curve."
    ),
]


def prepare(
    *,
    threads: int | None,
    dtype: str,
    device: str,
    revision: str | None,
    offline: bool,
    trust_remote_code: bool,
) -> LoadOptions:
    """Set the number of threads of this process, and check how the model is to be loaded."""
    import torch

    from echodraft.targets.huggingface.loading import LoadOptions

    if threads is not None:
        torch.set_num_threads(threads)
    return LoadOptions(
        dtype=dtype,
        device=device,
        revision=revision,
        offline=offline,
        trust_remote_code=trust_remote_code,
    )
