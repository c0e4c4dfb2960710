"""The number of comments that silence a check is written down and may only fall.

    check_suppressions.py [--update]

Counts `type: ignore`, `pragma: no cover` and `noqa` (with their variants that work the same way) in the
comments of our Python files, not in strings, and compares with tools/suppressions.json. More is a fault;
fewer is one too, until the number there is lowered: `--update` does that and never raises one.
"""

from __future__ import annotations

import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

__all__ = ["KINDS", "count", "main"]

FOLDERS = ("src", "tests", "tools", "examples")
LIMITS = "tools/suppressions.json"
KINDS = {
    "type: ignore": re.compile(r"#\s*(type:\s*ignore|mypy:\s*(ignore|disable|allow))"),
    "pragma: no cover": re.compile(r"#\s*pragma[:\s]?\s*no\s*(cover|branch)", re.IGNORECASE),
    "noqa": re.compile(r"#\s*((ruff|flake8):\s*)?noqa\b", re.IGNORECASE),
}


def main(arguments: list[str], root: Path = Path()) -> int:
    """Return 0 when the counts are those written down, 1 when not, 2 for a wrong call."""
    if arguments not in ([], ["--update"]):
        print("usage: check_suppressions.py [--update]", file=sys.stderr)
        return 2
    limits_file = root / LIMITS
    limits: dict[str, int] = json.loads(limits_file.read_text(encoding="utf-8"))
    if set(limits) != set(KINDS):
        print(f"check_suppressions: {LIMITS} must have exactly the keys {sorted(KINDS)}", file=sys.stderr)
        return 1

    counts = count(root)
    faults = [kind for kind in KINDS if counts[kind] > limits[kind]]
    for kind in faults:
        print(
            f"check_suppressions: {counts[kind]} times '{kind}', {limits[kind]} are allowed ({LIMITS}); "
            "mend the cause of the new one instead of silencing it",
            file=sys.stderr,
        )
    lower = [kind for kind in KINDS if counts[kind] < limits[kind]]
    if lower and arguments == ["--update"]:
        lowered = {kind: min(limits[kind], counts[kind]) for kind in sorted(KINDS)}
        limits_file.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
        print(f"check_suppressions: lowered in {LIMITS}: {', '.join(lower)}")
        lower = []
    for kind in lower:
        print(
            f"check_suppressions: only {counts[kind]} times '{kind}' are left, {LIMITS} says {limits[kind]}; "
            "lower it (check_suppressions.py --update), so that it stays so",
            file=sys.stderr,
        )
    if faults or lower:
        return 1
    print("check_suppressions: " + ", ".join(f"{counts[kind]} times '{kind}'" for kind in KINDS))
    return 0


def count(root: Path) -> Counter[str]:
    """How often each kind stands in the Python files below `root`'s FOLDERS."""
    counts: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for comment in _comments(path):
                for kind, pattern in KINDS.items():
                    counts[kind] += len(pattern.findall(comment))
    return counts


def _comments(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.string


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
