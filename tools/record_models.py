"""Write down what `make test-models` came to: date, versions, machine, and every test's outcome.

    record_models.py JUNIT_XML OUT_JSON

Beside the outcome stand the figures that a test recorded (`record_property`). A skipped test is a fault:
a check of real models that did not run must not look as if it had. Return 1 for any fault.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from echodraft.bench.files import write_json
from echodraft.bench.provenance import facts

__all__ = ["main", "outcomes"]

SCHEMA = "echodraft.models/1"


def main(arguments: list[str]) -> int:
    """Return 0 when all tests passed, 1 when not, 2 for a wrong call."""
    if len(arguments) != 2:
        print("usage: record_models.py JUNIT_XML OUT_JSON", file=sys.stderr)
        return 2
    report, out = map(Path, arguments)
    try:
        tests = outcomes(report)
    except (OSError, ElementTree.ParseError) as error:
        print(f"record_models: {error}", file=sys.stderr)
        return 1
    limit = os.environ.get("ECHODRAFT_TEST_PROMPTS")  # a reduced run must not look like a full one
    write_json(out, {"schema": SCHEMA, **facts(), "prompts_at_most": limit, "tests": tests})
    faults = [test["name"] for test in tests if test["outcome"] != "passed"]
    print(f"record_models: {len(tests) - len(faults)} of {len(tests)} passed; written to {out}")
    for name in faults:
        print(f"record_models: not passed: {name}", file=sys.stderr)
    return 1 if faults or not tests else 0


def outcomes(report: Path) -> list[dict[str, Any]]:
    """Every test of a JUnit report: name, outcome, seconds, recorded figures."""
    return [_outcome(case) for case in ElementTree.parse(report).getroot().iter("testcase")]


def _outcome(case: ElementTree.Element) -> dict[str, Any]:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        outcome = "failed"
    else:
        outcome = "skipped" if "skipped" in kinds else "passed"
    test = {
        "name": f"{case.get('file', case.get('classname'))}::{case.get('name')}",
        "outcome": outcome,
        "seconds": round(float(case.get("time", 0)), 1),
    }
    figures = {str(one.get("name")): one.get("value") for one in case.iter("property")}
    return test | ({"figures": figures} if figures else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
