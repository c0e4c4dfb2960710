"""Fill the generated parts of README.md and docs/**/*.md from the code.

    generate_docs.py [--check]

A part stands between two markers, each a comment of its own:

    <!-- drafters --> ... <!-- /drafters -->          table of all drafters
    <!-- options:NAME --> ... <!-- /options -->       options of drafter NAME
    <!-- help:COMMAND --> ... <!-- /help -->          what `echodraft COMMAND --help` says

With `--check` nothing is written: 1 if something would change, with the difference.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from echodraft.cli.main import main as run_cli
from echodraft.drafters.registry import describe

__all__ = ["fill", "main"]

WIDTH = "100"
OPEN = re.compile(r"<!-- (drafters|options|help)(?::([^>]*?))? -->")


class Fault(Exception):
    """A marker that cannot be filled."""


def main(arguments: list[str], root: Path = Path()) -> int:
    """Return 0 if all is as generated (now), 1 if not (or a marker is wrong), 2 for a wrong call."""
    if arguments not in ([], ["--check"]):
        print("usage: generate_docs.py [--check]", file=sys.stderr)
        return 2
    changed = 0
    for path in _pages(root):
        before = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        try:
            after = fill(before)
        except Fault as fault:
            print(f"generate_docs: {name}: {fault}", file=sys.stderr)
            return 1
        if after == before:
            continue
        changed += 1
        if arguments:
            diff = difflib.unified_diff(
                before.splitlines(), after.splitlines(), name, "generated", lineterm=""
            )
            print("\n".join(diff))
        else:
            path.write_text(after, encoding="utf-8")
            print(f"generate_docs: {name} written")
    if changed and arguments:
        print("generate_docs: generated parts are out of date; run make docs", file=sys.stderr)
        return 1
    return 0


def fill(text: str) -> str:
    """`text` with every marked part made anew.

    raises: Fault for a marker without an end, or that names nothing known.
    """
    parts, position = [], 0
    while match := OPEN.search(text, position):
        kind, name = match.group(1), (match.group(2) or "").strip()
        end = text.find(f"<!-- /{kind} -->", match.end())
        if end < 0:
            raise Fault(f"{match.group()} has no <!-- /{kind} -->")
        parts += [text[position : match.end()], "\n", MAKERS[kind](name).rstrip("\n"), "\n"]
        position = end
    return "".join(parts) + text[position:]


def _pages(root: Path) -> Iterator[Path]:
    yield from (path for path in [root / "README.md"] if path.is_file())
    yield from sorted((root / "docs").rglob("*.md"))


def _drafters(_: str) -> str:
    rows = [[f"`{d['name']}`", d["summary"], d["needs"], d["reference"]] for d in describe()]
    return _table(["drafter", "what it does", "needs", "source"], rows)


def _options(name: str) -> str:
    known: dict[str, dict[str, Any]] = {drafter["name"]: drafter for drafter in describe()}
    if name not in known:
        raise Fault(f"no drafter {name!r}; known: {', '.join(known)}")
    rows = [[f"`{o['name']}`", o["type"], f"`{o['default']}`", o["help"]] for o in known[name]["options"]]
    return _table(["option", "type", "default", "meaning"], rows) if rows else "No options."


def _help(command: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    environment = {"COLUMNS": WIDTH, "NO_COLOR": "1"}
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run_cli([*command.split(), "--help"])
    if code:
        raise Fault(f"echodraft {command} --help fails: {err.getvalue().strip()}")
    lines = [line.rstrip() for line in out.getvalue().strip().splitlines()]
    return "\n".join(["```", *lines, "```"])


MAKERS: dict[str, Callable[[str], str]] = {"drafters": _drafters, "options": _options, "help": _help}


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
