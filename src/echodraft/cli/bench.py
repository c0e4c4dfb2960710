"""`echodraft bench`: measure drafters on a suite of prompts."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)
