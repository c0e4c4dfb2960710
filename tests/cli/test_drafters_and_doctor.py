"""`echodraft drafters`, `doctor` and `bench run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import echodraft
from echodraft.cli.doctor import _choices
from echodraft.drafters.registry import DRAFTERS, describe
from echodraft.policies.cost_model import LatencyCurve


def test_drafters_as_json_are_the_registry(run):
    outcome = run("drafters", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    known = json.loads(outcome.out)
    assert known == describe()
    assert [drafter["name"] for drafter in known] == list(DRAFTERS)
    assert set(known[0]) == {"name", "summary", "reference", "needs", "options"}


def test_every_drafter_and_option_can_be_read_with_its_default(run):
    lines = run("drafters").out.splitlines()
    for drafter in describe():
        assert f"{drafter['name']}  {drafter['summary']}" in lines
        assert f"  needs: {drafter['needs']}" in lines
        assert f"  reference: {drafter['reference']}" in lines
        for option in drafter["options"]:
            if "." not in option["name"]:
                found = [line.split()[0] for line in lines if line.endswith(option["help"])]
                assert f"{option['name']}={option['default']}" in found


def test_doctor_as_json_tells_machine_model_curve_and_choices(run, tiny_model_folder, own_cache):
    outcome = run("doctor", "--model", tiny_model_folder, "--threads", 1, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert report["echodraft"] == echodraft.__version__
    assert report["versions"]["torch"] == torch.__version__
    assert report["threads"] == 1
    assert report["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert report["cache_folder"] == str(own_cache)
    assert report["default_model"].endswith(".gguf")
    assert report["model"]["architecture"] == "LlamaForCausalLM"
    assert report["model"]["path"] == "fast"
    assert report["model"]["context_limit"] == 1024
    assert report["latency"]["rows"][0] == 1
    assert len(report["latency"]["rows"]) == len(report["latency"]["seconds"]) >= 7
    assert min(report["latency"]["seconds"]) > 0
    assert [choice["acceptance"] for choice in report["cost_model"]] == [0.5, 0.7, 0.9, 0.97]
    (kept,) = (own_cache / "latency").glob("*.json")
    assert json.loads(kept.read_text(encoding="utf-8"))["rows"] == report["latency"]["rows"]


def test_doctor_draws_the_curve(run, tiny_model_folder):
    lines = run("doctor", "--model", tiny_model_folder).out.splitlines()
    assert any(line.split() == ["dtype", "float32"] for line in lines)
    bars = [line for line in lines if "█" in line]
    assert [bar.split()[0] for bar in bars][:3] == ["1", "2", "3"]
    assert max(bar.count("█") for bar in bars) == 40
    assert sum(line.rstrip().endswith("x") for line in lines) == 4


def test_free_rows_are_used_and_dear_ones_are_not():
    """Against the sums: a chain of n tokens of probability p gives 1 + p + ... + p^n tokens."""
    free = _choices(LatencyCurve((1, 65), (1.0, 1.0)))
    for choice in free:
        chain = sum(choice["acceptance"] ** i for i in range(int(choice["budget"]) + 1))
        assert choice["tokens_per_step"] == pytest.approx(chain)
        assert choice["speedup"] == pytest.approx(chain)
        assert choice["budget"] >= 9
    dear = _choices(LatencyCurve((1, 2, 65), (1.0, 3.0, 200.0)))
    assert [(choice["budget"], choice["speedup"]) for choice in dear] == [(0, 1.0)] * 4


def test_bench_run_writes_rows_and_prints_the_report(run, tiny_model_folder, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "manifest.json").write_text('{"a": {"file": "a.jsonl"}, "b": {"file": "b.jsonl"}}')
    for name in ("a", "b"):
        items = ({"id": f"{name}{i}", "prompt_ids": [5, 6, 7, 8, 5, 6, 7, i]} for i in range(3))
        lines = [json.dumps(item) for item in items]
        (suite / f"{name}.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out"
    command = ("bench", "run", "--suite", suite, "--model", tiny_model_folder, "--out", out)
    options = (
        "--methods",
        "plain,suffix_automaton@few:max_length=8,min_match=2",
        "--sets",
        "b",
        "--max-prompts",
        2,
    )
    outcome = run(*command, *options, "--max-new-tokens", 8, "--threads", 1, "--budget", "fixed")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [json.loads(line) for line in Path(out / "results.jsonl").read_text().splitlines()]
    assert {(row["set"], row["method"]) for row in rows} == {("b", "plain"), ("b", "few")}
    assert len(rows) == 4
    assert all(row["completion_tokens"] == 8 for row in rows)
    assert "few" in outcome.out
    again = run(*command, *options, "--max-new-tokens", 8, "--threads", 1, "--budget", "fixed")
    assert again.out == outcome.out, "nothing is missing, so nothing is run again"
