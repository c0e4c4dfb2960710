"""`echodraft generate`: answer one prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from echodraft.cli import options
from echodraft.cli.interrupt import Interrupt
from echodraft.cli.progress import ConsoleProgress
from echodraft.cli.prompt import read_prompt

if TYPE_CHECKING:
    from echodraft.engine import Stream

__all__ = ["generate"]

INTERRUPTED = 130


def generate(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to say to the model; - reads standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Read the prompt from a file.")
    ] = None,
    ids_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompt ids instead: a file with a JSON list.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A system message before the prompt.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it stands, without the chat template.")
    ] = False,
    model: options.Model = None,
    drafter: options.DrafterName = "auto",
    drafter_option: options.DrafterOptions = None,
    num_speculative_tokens: options.NumSpeculativeTokens = 64,
    budget: options.Budget = "cost_model",
    min_value: options.MinValue = 0.0,
    max_new_tokens: Annotated[
        int, typer.Option(min=0, metavar="N", help="The most tokens to generate.")
    ] = 256,
    stop_token_id: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="ID", help="End at this token id too; may be given several times."),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on after the model's own end tokens.")
    ] = False,
    stream: Annotated[bool, typer.Option(help="Write the text as it comes, or at the end.")] = True,
    show_drafts: Annotated[
        bool, typer.Option("--show-drafts", help="Colour drafted tokens by the source that drafted them.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also decode plainly; compare the ids and the speed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the text.")
    ] = False,
    threads: options.Threads = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    revision: options.Revision = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    recalibrate: options.Recalibrate = False,
) -> int:
    """
    \b
    $ echodraft generate "Correct the spelling: Teh cat sat onn the mat." --show-drafts
    $ echodraft generate -f prompt.txt --compare
    $ git diff | echodraft generate - --system "Describe this change in one line." --model MODEL

    Answer a prompt, several tokens a forward. The text goes to stdout, one line about it to stderr.
    Ctrl-C ends it with what was generated so far.
    """
    source = read_prompt(prompt, file, ids_file, system=system, raw=raw)

    from echodraft.drafters.registry import parse_options
    from echodraft.engine import DraftOptions, Engine

    drafting = DraftOptions(
        drafter=drafter,
        options=asdict(parse_options(drafter, drafter_option or ())),
        num_speculative_tokens=num_speculative_tokens,
        budget=budget,
        min_value=min_value,
    )
    load = options.prepare(
        threads=threads,
        dtype=dtype,
        device=device,
        revision=revision,
        offline=offline,
        trust_remote_code=trust_remote_code,
    )
    interrupt, console = Interrupt(), Console(file=sys.stderr)
    with ConsoleProgress(console, interrupt) as progress:
        engine = Engine.from_pretrained(
            model, load=load, drafting=drafting, recalibrate=recalibrate, progress=progress
        )
        ids = engine.encode(source.text, ids=source.ids, system=system, raw=raw)
        request: dict[str, Any] = {
            "ids": ids,
            "max_new_tokens": max_new_tokens,
            "stop_token_ids": stop_token_id or (),
            "ignore_eos": ignore_eos,
        }
        return _answer(
            engine,
            request,
            interrupt=interrupt,
            progress=progress,
            console=console,
            live=stream and not as_json,
            show_drafts=show_drafts,
            with_plain=compare,
            as_json=as_json,
        )


def _answer(
    engine: Any,
    request: dict[str, Any],
    *,
    interrupt: Interrupt,
    progress: ConsoleProgress,
    console: Console,
    live: bool,
    show_drafts: bool,
    with_plain: bool,
    as_json: bool,
) -> int:
    """Run the request, print what came out; the exit code."""
    from echodraft.cli.compare import compare, plain_options, warm_up
    from echodraft.cli.display import Output, legend, speed, summary

    stream = engine.stream(**request)  # what is wrong with the request is said here
    if with_plain:
        warm_up(engine, request["ids"])
    with interrupt:
        output = Output(stream, engine.tokenizer, live=live, show_drafts=show_drafts)
        _follow(stream, interrupt, lambda piece: None if as_json else output.add(piece))
        result, plain, comparison = stream.result, None, None
        if not as_json:
            output.finish(result)
        if with_plain and not interrupt.pressed:
            beside = engine.stream(**plain_options(request))
            expected = max(result.completion_tokens, 1)
            _follow(
                beside,
                interrupt,
                lambda _: progress("decoding plainly", min(len(beside.token_ids), expected - 1), expected),
            )
            progress.clear()
            if not interrupt.pressed:
                plain = beside.result
                comparison = compare(result, plain)

    if as_json:
        document = result.as_dict()
        if show_drafts:
            document["sources"] = result.sources
        if comparison is not None:
            document["plain"] = comparison.as_dict()
        print(json.dumps(document, allow_nan=False))
    else:
        if show_drafts:
            legend(result, console)
        print(summary(result), file=sys.stderr)
        if plain is not None and comparison is not None:
            faster = f"{comparison.speedup:.2f}x as fast, " if comparison.speedup else ""
            print(
                f"plain: {plain.completion_tokens} tokens in {plain.seconds:.2f} s "
                f"({speed(plain.completion_tokens, plain.seconds)}); {faster}{comparison}",
                file=sys.stderr,
            )
    return INTERRUPTED if interrupt.pressed else 0


def _follow(stream: Stream, interrupt: Interrupt, show: Callable[[str], None]) -> None:
    """Read a stream to its end, or to a Ctrl-C."""
    try:
        for piece in stream:
            show(piece)
            if interrupt.pressed:
                break
    except KeyboardInterrupt:  # a second Ctrl-C, or one in a long prefill
        interrupt.pressed = True
    stream.close()
