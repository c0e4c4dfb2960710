"""The check of losslessness can fail: on texts that differ, and on drafts that were never accepted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tools.check_lossless as tool
from echodraft.bench.near_ties import NearTieChecker
from echodraft.engine import Engine
from tests.tiny import byte_tokenizer, llama

CHECK = tool.Check("tiny", prompts=3, tokens=20, drafters=("auto", "prompt_lookup"), raw=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHODRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tool, "BUILT_IN", ["ab ab ab ab", "xyz xyz x", "0101010101"])
    llama(max_position_embeddings=2048).save_pretrained(tmp_path / "tiny")
    byte_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path


def test_a_lossless_model_passes_and_its_forwards_are_counted(folder):
    document = tool.check_model(CHECK, folder / "tiny", None, folder / "out.json", None)
    assert document["faults"] == []
    assert document["missing"] == []
    assert json.loads((folder / "out.json").read_text(encoding="utf-8"))["runs"] == document["runs"]
    assert document["runs"]["plain"]["forwards"] == 3 * (CHECK.tokens - 1)
    for drafter in CHECK.drafters:
        run = document["runs"][drafter]
        assert run["identical"] == 3
        assert run["saved_forwards"] == 3 * (CHECK.tokens - 1) - run["forwards"] > 0
    assert document["runs"][tool.PRICED]["prompts"] == 1
    assert str(folder) not in json.dumps(document)


def test_a_slice_that_runs_out_of_time_goes_on_later(folder, monkeypatch):
    first = tool.check_model(CHECK, folder / "tiny", None, folder / "out.json", 0.0)
    assert set(first["missing"]) == set(CHECK.runs)
    tool.check_model(CHECK, folder / "tiny", None, folder / "out.json", None)
    monkeypatch.setattr(tool, "_run", None)  # nothing is left to run
    assert tool.check_model(CHECK, folder / "tiny", None, folder / "out.json", None)["missing"] == []


def rows_of(engine: Engine, **changes) -> tuple[list[dict], dict[str, list[int]]]:
    prompt = [5, 6, 7, 5, 6, 7]
    plain = engine.generate(ids=prompt, max_new_tokens=8, drafting=tool._drafting("plain", 0)).token_ids
    row = {"prompt_id": "p", "forwards": 7, "drafted_rows": 0, "ids": plain}
    drafted = {"run": "auto", "steps": 4, "nodes": 9, "accepted": 3, "forwards": 4, "drafted_rows": 9}
    return [{**row, "run": "plain"}, {**row, **drafted, **changes}], {"p": prompt}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"steps": 5}, "the hook saw other counts in 1 prompts"),
        ({"forwards": 7, "steps": 7, "accepted": 0}, "no draft was accepted"),
        ({"ids": [1, 2, 3]}, "1 outputs differ"),
    ],
)
def test_every_fault_is_found(changes, fault):
    engine = Engine(llama(), byte_tokenizer())
    rows, prompts = rows_of(engine, **changes)
    compared = tool.compare(rows, prompts, NearTieChecker(engine.target.model))
    document = tool.summary(replace(CHECK, prompts=1, drafters=("auto",)), compared)
    if fault is None:
        assert document["faults"] == []
    else:
        assert any(fault in one for one in document["faults"]), document["faults"]


def test_more_near_ties_than_one_in_20000_tokens_are_a_fault():
    tie = {"verdict": "near tie"}
    counts = {"different": [], "tokens": 12_000, "miscounted": 0, "saved_forwards": 5, "prompts": 200}
    check = replace(CHECK, drafters=("auto",))
    assert not tool.summary(check, {"auto": {**counts, "near_ties": [tie]}})["faults"]
    assert tool.summary(check, {"auto": {**counts, "near_ties": [tie] * 2}})["faults"]
    assert not tool.summary(check, {"auto": {**counts, "tokens": 40_000, "near_ties": [tie] * 2}})["faults"]
