"""Files of a run survive writers that are killed."""

from __future__ import annotations

import json

import pytest

from echodraft.bench.files import Rows, write_json


def test_rows_come_back_in_order(tmp_path):
    rows = Rows(tmp_path / "new" / "rows.jsonl")
    assert rows.read() == []
    rows.append({"a": 1, "text": "ä\n"})
    rows.append({"a": 2})
    assert rows.read() == [{"a": 1, "text": "ä\n"}, {"a": 2}]


def test_half_a_line_costs_only_itself(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = Rows(path)
    rows.append({"a": 1})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"a": 2, "b"')
    rows.append({"a": 3})
    assert rows.read() == [{"a": 1}, {"a": 3}]


def test_what_is_no_number_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Rows(tmp_path / "rows.jsonl").append({"a": float("nan")})


def test_a_document_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
