"""Measuring a latency curve: points, time allowed, the file it is kept in."""

from __future__ import annotations

import time

import pytest

from echodraft.policies.cost_model import LatencyCurve
from echodraft.policies.latency import CONTEXT, FAR_CONTEXT, FIRST, THEN, load_curve, measure, save_curve


class FakeClock:
    """A machine whose forwards take what `seconds(rows, context)` says, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scale: float = 1.0) -> None:
        self.now = 0.0
        self.scale = scale
        self.calls: list[tuple[int, int]] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def seconds(self, rows: int, context: int) -> float:
        return self.scale * (rows + 0.001 * rows * context)

    def __call__(self, rows: int, context: int) -> float:
        self.calls.append((rows, context))
        took = self.seconds(rows, context)
        self.now += took
        return took


def test_a_fast_machine_is_measured_at_all_points(monkeypatch):
    timer = FakeClock(monkeypatch, scale=1e-4)
    curve = measure(timer)
    assert curve.rows == tuple(sorted({*FIRST, *THEN}))
    assert curve.seconds == pytest.approx([timer.seconds(rows, CONTEXT) for rows in curve.rows])
    assert curve.context == CONTEXT
    assert curve.per_row_token == pytest.approx(1e-4 * 0.001)
    assert curve.at(FAR_CONTEXT, 16)[15] == pytest.approx(timer.seconds(16, FAR_CONTEXT))


def test_a_slow_machine_is_measured_in_one_round(monkeypatch):
    timer = FakeClock(monkeypatch, scale=10.0)
    curve = measure(timer, seconds=2.4)
    assert curve.rows == FIRST
    near = [rows for rows, context in timer.calls if context == CONTEXT]
    assert len(near) <= len(FIRST) + 2


def test_the_time_allowed_is_respected(monkeypatch):
    timer = FakeClock(monkeypatch, scale=0.01)
    measure(timer, seconds=5.0)
    far = sum(timer.seconds(rows, context) for rows, context in timer.calls if context != CONTEXT)
    slowest = timer.seconds(64, CONTEXT)
    assert timer.now - far < 5.0 + slowest


def test_a_disturbance_of_one_round_is_forgotten(monkeypatch):
    timer = FakeClock(monkeypatch, scale=1e-4)
    disturbed = {(8, 1)}

    def shaky(rows: int, context: int) -> float:
        again = sum(call == (rows, context) for call in timer.calls)
        took = timer(rows, context)
        return took * 50 if (rows, again + 1) in disturbed else took

    curve = measure(shaky)
    assert curve.seconds[curve.rows.index(8)] == pytest.approx(timer.seconds(8, CONTEXT))


@pytest.mark.parametrize("limit", [1, 2, 5, 64])
def test_no_more_rows_than_asked_for(limit, monkeypatch):
    timer = FakeClock(monkeypatch, scale=1e-4)
    curve = measure(timer, limit=limit)
    assert max(curve.rows) <= limit
    assert max(rows for rows, _ in timer.calls) <= limit


def test_a_curve_falls_never_below_zero_with_the_context(monkeypatch):
    monkeypatch.setattr(FakeClock, "seconds", lambda self, rows, context: 1e-4 / (1 + context))
    assert measure(FakeClock(monkeypatch)).per_row_token == 0.0


def test_progress_is_reported(monkeypatch):
    seen: list[tuple[str, int, int]] = []
    measure(FakeClock(monkeypatch, scale=1e-4), report=lambda *step: seen.append(step))
    assert seen[0][0] == "calibrating"
    assert seen[-1][1] <= seen[-1][2]


CURVE = LatencyCurve((1, 2, 64), (0.1, 0.3, 0.2), 256, 1e-6)


def test_a_curve_kept_on_disk_is_the_same(tmp_path):
    save_curve(tmp_path / "new", "finger", CURVE)
    assert load_curve(tmp_path / "new", "finger") == CURVE
    assert load_curve(tmp_path / "new", "other") is None
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["finger.json"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "7", '{"schema": "echodraft.latency/0"}', '{"schema": "echodraft.latency/1"}',
     '{"schema": "echodraft.latency/1", "rows": [], "seconds": [], "context": 1, "per_row_token": 0}',
     '{"schema": "echodraft.latency/1", "rows": 1, "seconds": 2, "context": 1, "per_row_token": 0}'],
)  # fmt: skip
def test_a_broken_file_is_measured_anew(content, tmp_path):
    (tmp_path / "finger.json").write_text(content)
    assert load_curve(tmp_path, "finger") is None


def test_a_file_that_is_no_text_is_measured_anew(tmp_path):
    (tmp_path / "finger.json").write_bytes(b"\xff\xfe\x00")
    assert load_curve(tmp_path, "finger") is None


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    save_curve(tmp_path, "finger", CURVE)

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("echodraft.policies.latency.json.dump", fail)
    with pytest.raises(OSError, match="disk full"):
        save_curve(tmp_path, "finger", LatencyCurve((1,), (9.0,)))
    assert load_curve(tmp_path, "finger") == CURVE
