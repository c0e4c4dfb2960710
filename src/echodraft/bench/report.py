"""Report: figures computed from a run's rows, and from nothing else.

How figures are made (docs/architecture.md): MAT of a set = sum of tokens / sum of steps (what the prefill
decided left out), over sets the geometric mean; speed-up = mean of the per-prompt log ratios of seconds,
with a paired bootstrap interval; answers that end in a loop are counted apart, because they are easy to
draft and nobody wants them. A failed request is counted by its error's name and enters no figure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import numpy as np

from echodraft.bench.files import Rows, write_json
from echodraft.bench.methods import HF_PLAIN, PLAIN
from echodraft.errors import InvalidRequest

__all__ = ["EDIT", "bootstrap_interval", "markdown", "mat", "summarise"]

SCHEMA = "echodraft.summary/1"
EDIT = ("editeval", "json_reformat", "humanevalfix_python", "doc_typo_commits")
RESAMPLES = 10_000
SEED = 0  # of the bootstrap: the same rows give the same interval

RowsOf = SequenceOf[Mapping[str, Any]]


def summarise(folder: Path) -> dict[str, Any]:
    """Figures of the run in `folder`, also written to its summary.json.

    raises: InvalidRequest if there are no results.
    """
    rows = Rows(folder / "results.jsonl").read()
    if not rows:
        raise InvalidRequest(f"no results in {folder}; run `echodraft bench run --out {folder} ...` first")
    run = folder / "run.json"
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figures = summarise_rows(rows)
    document = {
        "schema": SCHEMA,
        "run": json.loads(run.read_text(encoding="utf-8")) if run.is_file() else None,
        "methods": {method: figures[method] for method in sorted(methods)},
    }
    write_json(folder / "summary.json", document)
    return document


def summarise_rows(rows: RowsOf) -> dict[str, dict[str, Any]]:
    """Figures by method."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_method.setdefault(str(row["method"]), []).append(row)
    return {method: _figures(of_method, by_method) for method, of_method in by_method.items()}


def mat(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Tokens per decoding forward, weighted by forwards; None without any."""
    tokens = steps = 0
    for row in rows:
        tokens += row["completion_tokens"] - row.get("prefill_tokens", 1)
        steps += row["steps"]
    return tokens / steps if steps else None


def bootstrap_interval(
    values: SequenceOf[float], generator: np.random.Generator, *, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """95% percentile interval of the mean; None for fewer than two values.

    Pairs stay together because `values` are already differences of a pair.
    """
    if len(values) < 2:
        return None
    sample = np.asarray(values, dtype=np.float64)
    picks = generator.integers(0, len(sample), size=(resamples, len(sample)))
    low, high = np.quantile(sample[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _figures(rows: RowsOf, by_method: Mapping[str, RowsOf]) -> dict[str, Any]:
    good = [row for row in rows if "error" not in row]
    sets = list(dict.fromkeys(str(row["set"]) for row in good))
    steps = sum(row["steps"] for row in good)
    return {
        "prompts": len(rows),
        "errors": dict(Counter(str(row["error"]).partition(":")[0] for row in rows if "error" in row)),
        "loops": sum(bool(row.get("loop")) for row in good),
        "tokens": sum(row["completion_tokens"] for row in good),
        "steps": steps,
        "nodes_per_step": sum(row["nodes"] for row in good) / steps if steps else None,
        **_means(good, sets),
        "without_loops": _means([row for row in good if not row.get("loop")], sets),
        "identical": _identical(good),
        "speedup": {
            baseline: _speedup(good, by_method[baseline])
            for baseline in (PLAIN, HF_PLAIN)
            if baseline in by_method
        },
        "overhead": _overhead(good, by_method.get(PLAIN, [])),
        "sets": {
            name: {
                "prompts": len(of_set),
                "mat": mat(of_set),
                "nodes_per_step": _ratio(
                    sum(row["nodes"] for row in of_set), sum(row["steps"] for row in of_set)
                ),
                "speedup": {
                    baseline: _speedup(of_set, by_method[baseline])
                    for baseline in (PLAIN, HF_PLAIN)
                    if baseline in by_method
                },
            }
            for name in sets
            if (of_set := [row for row in good if row["set"] == name])
        },
    }


def _means(rows: RowsOf, sets: SequenceOf[str]) -> dict[str, Any]:
    """Geometric means over sets of MAT, over all and over EDIT ones."""
    by_set = {name: mat(row for row in rows if row["set"] == name) for name in sets}
    known = {name: value for name, value in by_set.items() if value}
    return {
        "mat": geometric_mean(list(known.values())),
        "mat_edit": geometric_mean([value for name, value in known.items() if name in EDIT]),
        "edit_sets": [name for name in known if name in EDIT],
    }


def geometric_mean(values: SequenceOf[float]) -> float | None:
    """exp of the mean logarithm; None of nothing."""
    return float(np.exp(np.mean(np.log(values)))) if values else None


def _identical(rows: RowsOf) -> dict[str, int]:
    """Counts of texts that are the reference's: equal, near ties, different, and not compared."""
    counts = {"equal": 0, "near_ties": 0, "different": 0, "not_compared": 0}
    for row in rows:
        difference = row.get("difference") or {}
        if row.get("identical") is None:
            counts["not_compared"] += 1
        elif row["identical"]:
            counts["equal"] += 1
        elif difference.get("verdict") == "near tie":
            counts["near_ties"] += 1
        else:
            counts["different"] += 1
    return counts


def _speedup(rows: RowsOf, baseline: RowsOf) -> dict[str, Any] | None:
    """Baseline seconds / seconds per prompt, whole requests: geometric mean, interval, share below 1."""
    before = {row["prompt_id"]: row["seconds"] for row in baseline if "error" not in row}
    pairs = [(before[row["prompt_id"]], row["seconds"]) for row in rows if row["prompt_id"] in before]
    logs = [float(np.log(slow / fast)) for slow, fast in pairs if slow > 0 and fast > 0]
    if not logs:
        return None
    interval = bootstrap_interval(logs, np.random.default_rng(SEED))
    return {
        "prompts": len(logs),
        "mean": float(np.exp(np.mean(logs))),
        "interval": None if interval is None else [float(np.exp(bound)) for bound in interval],
        "below_1": sum(log < 0 for log in logs),
        "lowest": float(np.exp(min(logs))),
    }


def _overhead(rows: RowsOf, plain: RowsOf) -> float | None:
    """Draft and commit seconds per step over plain decoding's seconds per step, in the same run."""
    timed = [row for row in rows if "draft_seconds" in row]
    steps = sum(row["steps"] for row in timed)
    plain_steps = sum(row["steps"] for row in plain if "error" not in row)
    if not steps or not plain_steps:
        return None
    own = sum(row["draft_seconds"] + row["commit_seconds"] for row in timed) / steps
    one = sum(row["seconds"] - row["prefill_seconds"] for row in plain if "error" not in row) / plain_steps
    return own / one if one > 0 else None


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def markdown(document: Mapping[str, Any]) -> str:
    """The summary as a table of methods, and one of MAT by set."""
    methods: Mapping[str, Mapping[str, Any]] = document["methods"]
    head = ["method", "MAT", "EDIT MAT", "nodes/step", "vs plain", "vs hf:plain", "overhead", "same", "loops"]
    lines = []
    for name, figures in methods.items():
        same = figures["identical"]
        compared = same["equal"] + same["near_ties"] + same["different"]
        ties = f" + {same['near_ties']} near ties" if same["near_ties"] else ""
        errors = f", {sum(figures['errors'].values())} errors" if figures["errors"] else ""
        lines.append(
            [
                name,
                _number(figures["mat"]),
                _number(figures["mat_edit"]),
                _number(figures["nodes_per_step"]),
                _times(figures["speedup"].get(PLAIN)),
                _times(figures["speedup"].get(HF_PLAIN)),
                "–" if figures["overhead"] is None else f"{figures['overhead']:.1%}",
                (f"{same['equal']}/{compared}{ties}" if compared else "–") + errors,
                str(figures["loops"]),
            ]
        )
    sets = list(dict.fromkeys(name for figures in methods.values() for name in figures["sets"]))
    by_set = [
        [name, *(_number(m["sets"].get(name, {}).get("mat")) for m in methods.values())] for name in sets
    ]
    return _table(head, lines) + "\n" + _table(["MAT by set", *methods], by_set)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _times(speedup: Mapping[str, Any] | None) -> str:
    if speedup is None:
        return "–"
    interval = speedup["interval"]
    bounds = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{speedup['mean']:.2f}{bounds}"


def _table(head: SequenceOf[str], lines: SequenceOf[SequenceOf[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *lines])
