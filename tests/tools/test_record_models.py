"""Recording: outcomes of a JUnit report become a document, and a skip is a fault."""

from __future__ import annotations

import json

import pytest

from tools.record_models import main

CASE = '<testcase file="tests/models/test_x.py" name="test_{0}" time="1.26">{1}</testcase>'


def report(*cases: str) -> str:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def test_outcomes_and_figures_are_written_down(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ECHODRAFT_TEST_PROMPTS", "3")
    figures = '<properties><property name="tokens" value="64"/></properties>'
    (tmp_path / "in.xml").write_text(
        report(CASE.format("a", figures), CASE.format("b", "")), encoding="utf-8"
    )
    assert main([str(tmp_path / "in.xml"), str(tmp_path / "out.json")]) == 0
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["tests"] == [
        {
            "name": "tests/models/test_x.py::test_a",
            "outcome": "passed",
            "seconds": 1.3,
            "figures": {"tokens": "64"},
        },
        {"name": "tests/models/test_x.py::test_b", "outcome": "passed", "seconds": 1.3},
    ]
    assert document["prompts_at_most"] == "3"
    assert {"date", "versions", "commit", "machine"} <= set(document)
    assert "2 of 2 passed" in capsys.readouterr().out


@pytest.mark.parametrize("tag", ["failure", "error", "skipped"])
def test_what_did_not_pass_is_written_down_and_a_fault(tmp_path, capsys, tag):
    (tmp_path / "in.xml").write_text(report(CASE.format("a", f"<{tag}/>")), encoding="utf-8")
    assert main([str(tmp_path / "in.xml"), str(tmp_path / "out.json")]) == 1
    outcome = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["tests"][0]["outcome"]
    assert outcome == ("skipped" if tag == "skipped" else "failed")
    assert "test_a" in capsys.readouterr().err


def test_no_tests_no_report_and_a_wrong_call_are_faults(tmp_path):
    (tmp_path / "in.xml").write_text(report(), encoding="utf-8")
    assert main([str(tmp_path / "in.xml"), str(tmp_path / "out.json")]) == 1
    assert main([str(tmp_path / "nothing.xml"), str(tmp_path / "out.json")]) == 1
    assert main([]) == 2
