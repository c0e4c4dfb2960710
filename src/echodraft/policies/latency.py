"""Latency: the target's time per forward by number of rows, measured once and kept on disk.

What a row costs depends on processor, threads, dtype and model and is not even monotonic, so it is
measured where it is used. The points are visited round by round, small and large in turn, and the best
time of each counts: a disturbance then hits single samples, not one end of the curve.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from echodraft.policies.cost_model import LatencyCurve

__all__ = ["load_curve", "measure", "save_curve"]

FIRST = (1, 2, 4, 8, 16, 32, 64)  # always measured
THEN = (3, 6, 12, 24, 48)  # measured while time is left
CONTEXT = 256
FAR_CONTEXT = 1280
SCHEMA = "echodraft.latency/1"

Timer = Callable[[int, int], float]  # rows, context -> seconds
Report = Callable[[str, int, int], None]


def measure(
    timer: Timer, *, seconds: float = 2.4, limit: int = 64, report: Report | None = None
) -> LatencyCurve:
    """Measure T(rows) for 1..limit rows in about `seconds`, or as long as one round takes.

    timer: one forward of `rows` rows behind `context` cached ones, in seconds.
    """
    begin = time.perf_counter()
    timer(1, CONTEXT)  # the first forward of a process pays for its set-up
    first = [rows for rows in FIRST if rows <= limit] or [1]
    then = [rows for rows in THEN if rows <= limit]
    best: dict[int, float] = {}
    rounds = [first, [1], then, first, then, first]
    points = [rows for one_round in rounds for rows in one_round]
    for done, rows in enumerate(points):
        if done >= len(first) + 1 and time.perf_counter() - begin > seconds:
            break
        best[rows] = min(timer(rows, CONTEXT), best.get(rows, float("inf")))
        if report is not None:
            report("calibrating", done + 1, len(points))
    measured = sorted(best)
    slope = _per_row_token(timer, min(16, limit), best)
    return LatencyCurve(tuple(measured), tuple(best[rows] for rows in measured), CONTEXT, slope)


def load_curve(folder: Path, fingerprint: str) -> LatencyCurve | None:
    """The curve kept for this fingerprint, or None (also if the file is unreadable: it is made anew)."""
    try:
        kept = json.loads((folder / f"{fingerprint}.json").read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA:
            return None
        return LatencyCurve(
            tuple(kept["rows"]), tuple(kept["seconds"]), kept["context"], kept["per_row_token"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_curve(folder: Path, fingerprint: str, curve: LatencyCurve) -> None:
    """Keep `curve`; written beside and renamed, so that a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA,
        "rows": curve.rows,
        "seconds": curve.seconds,
        "context": curve.context,
        "per_row_token": curve.per_row_token,
    }
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(file.name, folder / f"{fingerprint}.json")


def _per_row_token(timer: Timer, rows: int, best: dict[int, float]) -> float:
    """What a row costs more per token of context, from one far measurement."""
    near = best.get(rows, max(best.values()))
    far = min(timer(rows, FAR_CONTEXT), timer(rows, FAR_CONTEXT))
    return max(far - near, 0.0) / (rows * (FAR_CONTEXT - CONTEXT))
