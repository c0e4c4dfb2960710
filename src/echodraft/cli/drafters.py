"""`echodraft drafters`: what there is to choose from."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["drafters"]


def drafters(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """
    \b
    $ echodraft drafters
    $ echodraft generate "Say: one two" --drafter suffix_automaton --drafter-option max_length=9

    List the drafters: what they need of the model, their options with defaults, where they come from.
    """
    from echodraft.drafters.registry import describe

    known = describe()
    names = {drafter["name"] for drafter in known}
    if as_json:
        print(json.dumps(known))
        return
    console = Console(file=sys.stdout, highlight=False)
    for drafter in known:
        console.print(f"[bold]{drafter['name']}[/]  {drafter['summary']}", soft_wrap=True)
        for what in ("needs", "reference"):
            console.print(f"  {what}: {drafter[what]}", markup=False, soft_wrap=True)
        own = [option for option in drafter["options"] if "." not in option["name"]]
        width = max((len(f"{option['name']}={option['default']}") for option in own), default=0)
        for option in own:
            setting = f"{option['name']}={option['default']}"
            console.print(f"    {setting:<{width}}  {option['help']}", markup=False, soft_wrap=True)
        for inner in sorted({option["name"].partition(".")[0] for option in drafter["options"]} & names):
            console.print(f"    {inner}.NAME=VALUE  options of {inner}", markup=False, soft_wrap=True)
        console.print()
