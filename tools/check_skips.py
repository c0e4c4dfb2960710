"""Every skipped or xfailed test must be allowed by name and with a reason.

    check_skips.py JUNIT_XML [ALLOWED_TXT]

A test that does not run looks like one that passes. So the report of a test run (pytest's JUnit file,
junit_family xunit1) is compared with tests/allowed_skips.txt, whose lines read `node id  # reason`.
Listed tests that do run are fine: what is skipped depends on the machine.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

__all__ = ["Skip", "main", "read_allowed", "read_skips", "unlisted"]

ALLOWED = Path("tests/allowed_skips.txt")


@dataclass(frozen=True, slots=True)
class Skip:
    """A test that did not run, or was expected to fail and did."""

    node_id: str
    kind: str  # "skipped" or "xfailed"
    reason: str


def main(arguments: list[str]) -> int:
    """Return 0 when all is allowed, 1 when not, 2 for a wrong call; print one line a finding."""
    if len(arguments) not in (1, 2):
        print("usage: check_skips.py JUNIT_XML [ALLOWED_TXT]", file=sys.stderr)
        return 2
    report = Path(arguments[0])
    allowed_file = Path(arguments[1]) if len(arguments) == 2 else ALLOWED
    try:
        skips, count = read_skips(report)
        allowed = read_allowed(allowed_file)
    except (OSError, ElementTree.ParseError, ValueError) as error:
        print(f"check_skips: {error}", file=sys.stderr)
        return 1
    if count == 0:
        print(f"check_skips: {report} holds no test at all", file=sys.stderr)
        return 1
    faults = list(unlisted(skips, allowed))
    for skip in faults:
        print(
            f"check_skips: {skip.node_id} was {skip.kind} ({skip.reason}) and {allowed_file} does not list "
            "it; make it run, or list it there with the reason",
            file=sys.stderr,
        )
    if not faults:
        print(f"check_skips: {count} tests, {len(skips)} skipped or xfailed, all of them listed")
    return 1 if faults else 0


def read_skips(report: Path) -> tuple[list[Skip], int]:
    """The tests of `report` that did not run, and the number of all its entries."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    return [skip for case in cases for skip in _skips(case)], len(cases)


def read_allowed(path: Path) -> list[str]:
    """The patterns of `path`; ValueError for a line without a reason."""
    patterns = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(" #")
        if not reason.strip():
            raise ValueError(f"{path}:{number}: {line.strip()!r} has no reason; write: node id  # reason")
        patterns.append(pattern.strip())
    return patterns


def unlisted(skips: list[Skip], patterns: list[str]) -> Iterator[Skip]:
    """The skips that no pattern matches. Brackets are literal: node ids of parametrised tests have them."""
    literal = [pattern.replace("[", "[[]") for pattern in patterns]
    return (skip for skip in skips if not any(fnmatchcase(skip.node_id, pattern) for pattern in literal))


def _skips(case: ElementTree.Element) -> Iterator[Skip]:
    for skipped in case.iter("skipped"):
        kind = "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"
        reason = skipped.get("message") or "no reason given"
        if reason == "collection skipped":  # a whole file; the reason is the last part of a tuple's repr
            reason = (skipped.text or reason).rpartition("Skipped: ")[2].rstrip("\"')")
        yield Skip(_node_id(case), kind, reason)


def _node_id(case: ElementTree.Element) -> str:
    file = case.get("file")
    if file is None:
        raise ValueError(f"test {case.get('name')!r} names no file; pytest needs junit_family = xunit1")
    module = file.removesuffix(".py").replace("/", ".")
    inside = case.get("classname", "").removeprefix(module).strip(".")  # the classes around the test
    if not case.get("classname"):  # a whole file was skipped
        return file
    return "::".join([file, *filter(None, inside.split(".")), case.get("name", "")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
