"""`echodraft doctor`: what this machine makes of a model."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from echodraft import __version__
from echodraft.cli import options
from echodraft.cli.progress import ConsoleProgress

if TYPE_CHECKING:
    from echodraft.engine import Engine
    from echodraft.policies.cost_model import LatencyCurve

__all__ = ["doctor"]

LIBRARIES = ("torch", "transformers", "numpy", "safetensors", "gguf")
ACCEPTANCE = (0.5, 0.7, 0.9, 0.97)
BAR = 40  # characters of the longest bar


def doctor(
    model: options.Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: options.Threads = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    revision: options.Revision = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    recalibrate: options.Recalibrate = False,
) -> None:
    """
    \b
    $ echodraft doctor
    $ echodraft doctor --model MODEL --threads 2 --recalibrate

    Show versions, device and threads, the model's time per forward by number of rows, and what the cost
    model makes of it: how many tokens it would draft, and what that would bring.
    """
    load = options.prepare(
        threads=threads,
        dtype=dtype,
        device=device,
        revision=revision,
        offline=offline,
        trust_remote_code=trust_remote_code,
    )
    machine = _machine(str(load.torch_device()))
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not as_json:
        _print_facts(console, machine)
        sys.stdout.flush()

    from echodraft.engine import Engine

    with ConsoleProgress() as progress:
        engine = Engine.from_pretrained(model, load=load, recalibrate=recalibrate, progress=progress)
        curve = engine.curve
    facts, choices = _model(engine, model), _choices(curve)
    if as_json:
        times = {"rows": curve.rows, "seconds": curve.seconds, "context": curve.context}
        print(json.dumps({**machine, "model": facts, "latency": times, "cost_model": choices}))
        return
    _print_facts(console, facts)
    _print_curve(console, curve)
    _print_choices(console, choices)


def _machine(device: str) -> dict[str, Any]:
    import torch

    from echodraft.targets.huggingface.loading import cache_folder, default_model

    default = default_model()
    return {
        "echodraft": __version__,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "cache_folder": str(cache_folder()),
        "default_model": default,
        "default_model_from": "installed package" if default.endswith(".gguf") else "hub",
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    return platform.processor() or platform.machine()


def _model(engine: Engine, name: str | None) -> dict[str, Any]:
    from echodraft.targets.huggingface.plain_cache import PlainCacheTarget

    module = engine.target.model
    return {
        "name": name or "default",
        "architecture": type(module).__name__,
        "path": "plain cache" if isinstance(engine.target, PlainCacheTarget) else "fast",
        "parameters": sum(weight.numel() for weight in module.parameters()),
        "dtype": str(module.dtype).removeprefix("torch."),
        "device": str(engine.target.device),
        "layers": engine.target.info.num_layers,
        "vocabulary": engine.target.info.vocabulary_size,
        "context_limit": engine.target.info.context_limit,
    }


def _choices(curve: LatencyCurve) -> list[dict[str, float]]:
    """What the cost model decides for chains whose tokens are each accepted with the same probability."""
    from echodraft.decoding.calibration import AcceptanceTable
    from echodraft.decoding.sequence import Sequence
    from echodraft.decoding.stopping import StopRule
    from echodraft.decoding.tree import Path, merge
    from echodraft.policies.cost_model import CostModel

    limit = 64
    sequence = Sequence([0] * curve.context, StopRule(frozenset(), 2 * limit))
    sequence.committed = curve.context
    seconds = curve.at(curve.context, limit + 1)
    choices = []
    for rate in ACCEPTANCE:
        chain = merge(0, [Path([0] * limit, [rate] * limit, "chain")], max_depth=limit)
        # A clock that stands still: drafting costs nothing here.
        tree = CostModel(curve, AcceptanceTable(), limit, clock=lambda: 0.0).select(chain, sequence)
        tokens, time = float(tree.values.sum()), float(seconds[len(tree) - 1])
        choices.append(
            {
                "acceptance": rate,
                "budget": len(tree) - 1,
                "tokens_per_step": tokens,
                "speedup": tokens * float(seconds[0]) / time,
            }
        )
    return choices


def _print_facts(console: Console, facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {version or 'missing'}" for key, version in value.items())
        elif isinstance(value, int):
            value = f"{value:,}"
        console.print(f"{name.replace('_', ' '):<20}{value}", soft_wrap=True)


def _print_curve(console: Console, curve: LatencyCurve) -> None:
    console.print(f"\nTime per forward by number of rows, {curve.context} tokens of context:\n")
    slowest = max(curve.seconds)
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("rows", "ms", "T(n)/T(1)"):
        table.add_column(name, justify="right")
    table.add_column("")
    for rows, seconds in zip(curve.rows, curve.seconds, strict=True):
        bar = "█" * max(round(BAR * seconds / slowest), 1)
        table.add_row(str(rows), f"{1000 * seconds:.1f}", f"{seconds / curve.seconds[0]:.2f}", bar)
    console.print(table)


def _print_choices(console: Console, choices: list[dict[str, float]]) -> None:
    console.print(
        "\nWhat the cost model makes of it, for a chain of tokens each accepted with probability p:\n"
    )
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("p", "drafts", "tokens a forward", "speed-up"):
        table.add_column(name, justify="right")
    for choice in choices:
        table.add_row(
            f"{choice['acceptance']:g}",
            str(choice["budget"]),
            f"{choice['tokens_per_step']:.2f}",
            f"{choice['speedup']:.2f}x",
        )
    console.print(table)
