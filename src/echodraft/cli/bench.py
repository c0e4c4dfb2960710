"""`echodraft bench`: measure drafters on a suite of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from echodraft.cli import options
from echodraft.cli.progress import ConsoleProgress

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def bench() -> None:
    """
    \b
    $ echodraft bench run --suite FOLDER --methods plain,auto --max-prompts 2 --out DIR

    Measure drafters on a suite of prompts.
    """


@app.command("run", short_help="Run methods on prompts, interleaved; write one row per prompt and method.")
def run(
    suite: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Prompt sets: JSONL files and their manifest.json.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results go; a run begun there goes on.")],
    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Drafters by name, plain, hf:plain, hf:prompt_lookup; NAME[@label][:key=value,...].",
        ),
    ] = "plain,auto",
    model: options.Model = None,
    sets: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Sets of the suite.", show_default="all")
    ] = None,
    max_prompts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most prompts per set.", show_default="all")
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most tokens to generate per prompt.")
    ] = 128,
    raw: Annotated[
        bool, typer.Option("--raw", help="Take prompts as they stand, without the chat template.")
    ] = False,
    budget: options.Budget = "cost_model",
    num_speculative_tokens: options.NumSpeculativeTokens = 64,
    min_value: options.MinValue = 0.0,
    threads: options.Threads = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
) -> None:
    """
    \b
    $ echodraft bench run --suite FOLDER --methods plain,auto,hf:plain --max-prompts 2 --out DIR

    Run every method on every prompt, interleaved, and write one row per prompt and method to
    DIR/results.jsonl. Calling it again does what is missing. The hf: methods run transformers alone, in a
    process of its own. Prints a report of all rows.
    """
    from echodraft.bench.methods import split_methods
    from echodraft.bench.report import markdown, summarise
    from echodraft.bench.runner import BenchmarkSpec, run_benchmark

    spec = BenchmarkSpec(
        suite=suite,
        out=out,
        methods=tuple(split_methods(methods)),
        model=model,
        sets=tuple(sets.split(",")) if sets else None,
        max_prompts=max_prompts,
        max_new_tokens=max_new_tokens,
        threads=threads,
        dtype=dtype,
        device=device,
        raw=raw,
        budget=budget,
        num_speculative_tokens=num_speculative_tokens,
        min_value=min_value,
    )
    with ConsoleProgress() as progress:
        folder = run_benchmark(spec, progress)
    print(markdown(summarise(folder)))
