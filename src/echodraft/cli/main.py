"""The command `echodraft`: its commands, and what becomes of errors.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a bug (with its traceback), 2 wrong
usage or a model that cannot be used (one line), 130 interrupted. torch and transformers are imported
inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import Exit, TyperException

from echodraft import __version__
from echodraft.cli import bench, doctor, drafters, generate
from echodraft.errors import EchodraftError

__all__ = ["app", "main"]

USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as the shell gives them: 128 + signal

app = typer.Typer(
    name="echodraft",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"echodraft {__version__}")
        raise Exit(0)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """
    \b
    $ echodraft generate "Correct the spelling: Teh cat sat onn the mat." --show-drafts

    Large language models answer several times faster, without changing a token: speculative decoding for
    Hugging Face models. Without --model, a small model that comes with echodraft is used.
    """


app.command("generate", short_help="Answer a prompt, several tokens a forward.")(generate.generate)
app.command("drafters", short_help="List the drafters and their options.")(drafters.drafters)
app.command("doctor", short_help="Show what this machine makes of a model.")(doctor.doctor)
app.add_typer(bench.app, name="bench", short_help="Measure drafters on a suite of prompts.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, say `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("echodraft", arguments) as context:
            code = command.invoke(context)
        return code if isinstance(code, int) else 0
    except Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        print("aborted", file=sys.stderr)
        return INTERRUPTED
    except EchodraftError as error:
        return _complain(str(error))
    except TyperException as error:
        hint = getattr(getattr(error, "ctx", None), "command_path", "echodraft")
        return _complain(f"{error.format_message().rstrip('.')} (see {hint} --help)")


def _complain(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return USAGE
