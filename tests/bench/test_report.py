"""Reports: every figure on rows whose figures are known by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import bootstrap

from echodraft.bench.files import Rows
from echodraft.bench.report import bootstrap_interval, markdown, mat, summarise, summarise_rows
from echodraft.errors import InvalidRequest


def row(method: str, set_: str, prompt: str, tokens: int, steps: int, seconds: float, **more) -> dict:
    given = {
        "method": method,
        "set": set_,
        "prompt_id": prompt,
        "completion_tokens": tokens,
        "prefill_tokens": 1,
        "steps": steps,
        "nodes": 0,
        "seconds": seconds,
        "prefill_seconds": 0.0,
        "identical": True,
        "loop": False,
    }
    return given | more


PLAIN = [
    row("plain", "editeval", "a", 41, 40, 4.0),
    row("plain", "editeval", "b", 21, 20, 2.0),
    row("plain", "gsm8k", "c", 31, 30, 3.0),
]
OWN = [
    row("auto", "editeval", "a", 41, 10, 1.0, nodes=80, draft_seconds=0.05, commit_seconds=0.05),
    row("auto", "editeval", "b", 21, 10, 1.0, nodes=40, draft_seconds=0.1, commit_seconds=0.0),
    row("auto", "gsm8k", "c", 31, 30, 6.0, nodes=30, draft_seconds=0.1, commit_seconds=0.2),
]


def test_mat_of_a_set_is_weighted_by_steps_and_leaves_the_prefill_out():
    assert mat(OWN[:2]) == (40 + 20) / (10 + 10)
    assert mat([row("hf:prompt_lookup", "s", "a", 41, 9, 1.0, prefill_tokens=5)]) == 36 / 9
    assert mat([]) is None


def test_over_sets_the_mean_is_geometric():
    figures = summarise_rows(PLAIN + OWN)["auto"]
    assert figures["sets"]["editeval"]["mat"] == 3.0
    assert figures["sets"]["gsm8k"]["mat"] == 1.0
    assert figures["mat"] == pytest.approx(math.sqrt(3.0))
    assert figures["mat_edit"] == pytest.approx(3.0)
    assert figures["edit_sets"] == ["editeval"]


def test_nodes_are_counted_per_step():
    figures = summarise_rows(PLAIN + OWN)["auto"]
    assert figures["nodes_per_step"] == 150 / 50
    assert figures["sets"]["editeval"]["nodes_per_step"] == 120 / 20


def test_the_speed_up_is_the_mean_of_the_prompts_log_ratios():
    figures = summarise_rows(PLAIN + OWN)["auto"]["speedup"]["plain"]
    assert figures["prompts"] == 3
    assert figures["mean"] == pytest.approx((4.0 * 2.0 * 0.5) ** (1 / 3))
    assert figures["below_1"] == 1
    assert figures["lowest"] == pytest.approx(0.5)
    low, high = figures["interval"]
    assert 0.5 <= low < figures["mean"] < high <= 4.0
    assert "hf:plain" not in summarise_rows(PLAIN + OWN)["auto"]["speedup"]
    own = summarise_rows(PLAIN)["plain"]["speedup"]["plain"]
    assert (own["mean"], own["interval"]) == (1.0, [1.0, 1.0])


def test_only_prompts_of_both_sides_are_pairs():
    figures = summarise_rows([*PLAIN[:1], *OWN])["auto"]["speedup"]["plain"]
    assert (figures["prompts"], figures["mean"], figures["interval"]) == (1, pytest.approx(4.0), None)


def test_overhead_is_draft_and_commit_of_a_step_over_a_plain_step():
    figures = summarise_rows(PLAIN + OWN)
    assert figures["auto"]["overhead"] == pytest.approx((0.5 / 50) / (9.0 / 90))
    assert figures["plain"]["overhead"] is None


def test_errors_are_counted_by_name_and_enter_no_figure():
    failed = {"method": "auto", "set": "gsm8k", "prompt_id": "d", "error": "PromptTooLong: 9 tokens"}
    figures = summarise_rows([*PLAIN, *OWN, failed])["auto"]
    assert figures["errors"] == {"PromptTooLong": 1}
    assert figures["prompts"] == 4
    assert figures["mat"] == pytest.approx(math.sqrt(3.0))
    alone = summarise_rows([failed])["auto"]
    assert (alone["mat"], alone["nodes_per_step"]) == (None, None)


def test_loops_are_counted_apart():
    loop = row("auto", "editeval", "l", 101, 2, 0.1, loop=True)
    figures = summarise_rows([*OWN, loop])["auto"]
    assert figures["loops"] == 1
    assert figures["mat_edit"] == pytest.approx(160 / 22)
    assert figures["without_loops"]["mat_edit"] == pytest.approx(3.0)


def test_texts_are_equal_near_ties_different_or_not_compared():
    rows = [
        row("auto", "s", "a", 2, 1, 1.0),
        row("auto", "s", "b", 2, 1, 1.0, identical=False, difference={"verdict": "near tie"}),
        row("auto", "s", "c", 2, 1, 1.0, identical=False, difference={"verdict": "different"}),
        row("auto", "s", "d", 2, 1, 1.0, identical=None),
    ]
    expected = {"equal": 1, "near_ties": 1, "different": 1, "not_compared": 1}
    assert summarise_rows(rows)["auto"]["identical"] == expected


def test_the_interval_is_that_of_scipy():
    values = np.random.default_rng(5).normal(0.4, 0.3, size=25)
    own = bootstrap_interval(values.tolist(), np.random.default_rng(1))
    other = bootstrap(
        (values,), np.mean, method="percentile", rng=np.random.default_rng(2), n_resamples=10_000
    )
    interval = other.confidence_interval
    # Both are random: a quantile of 10,000 resampled means (standard error 0.06) has one of 0.0016 itself,
    # so they agree to 0.01 but for 1 in 100,000 pairs of seeds; these seeds are fixed.
    assert own == pytest.approx((interval.low, interval.high), abs=0.01)
    assert bootstrap_interval([1.0], np.random.default_rng(1)) is None


def test_the_summary_is_written_beside_the_rows_and_is_the_same_again(tmp_path):
    rows = Rows(tmp_path / "results.jsonl")
    for one in PLAIN + OWN:
        rows.append(one)
    document = summarise(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == document
    assert summarise(tmp_path) == document
    assert document["run"] is None
    assert list(document["methods"]) == ["auto", "plain"]


def test_the_table_shows_what_a_reader_asks_for(tmp_path):
    rows = Rows(tmp_path / "results.jsonl")
    for one in PLAIN + OWN:
        rows.append(one)
    rows.append({"method": "auto", "set": "gsm8k", "prompt_id": "d", "error": "PromptTooLong: x"})
    table = markdown(summarise(tmp_path))
    line = next(line for line in table.splitlines() if line.startswith("| auto "))
    assert "| 1.73 | 3.00 | 3.00 | 1.59 [0.50, 4.00] | – | 10.0% | 3/3, 1 errors | 0 |" in line
    assert "| editeval | 3.00 | 1.00 |" in table


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(InvalidRequest, match="no results"):
        summarise(tmp_path)
