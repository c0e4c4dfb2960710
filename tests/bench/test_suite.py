"""Suites: which prompts are read, and what is said of a folder that is no suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from echodraft.bench.suite import load_suite
from echodraft.errors import InvalidRequest
from tests.tiny import byte_tokenizer


def write_suite(folder: Path, sets: dict[str, list[dict]], **entries: dict) -> Path:
    """A suite of these sets; `entries` are added to the manifest entries of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {name: {"file": f"{name}.jsonl", **entries.get(name, {})} for name in sets}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for name, items in sets.items():
        lines = "".join(json.dumps(item) + "\n" for item in items)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def message(name: str, text: str = "hello") -> dict:
    return {"id": name, "messages": [{"role": "user", "content": text}]}


def test_all_kinds_of_items_become_prompt_ids(tmp_path):
    items = [message("a", "hi"), {"id": "b", "turns": ["hi", "again"]}, {"id": "c", "prompt_ids": [5, 6]}]
    suite = load_suite(write_suite(tmp_path, {"mixed": items}))
    tokenizer = byte_tokenizer()
    by_id = {item.id: item for item in suite.items}
    assert by_id["a"].encode(tokenizer) == by_id["b"].encode(tokenizer)
    assert by_id["a"].encode(tokenizer, raw=True) == tokenizer("hi")["input_ids"]
    assert by_id["a"].encode(tokenizer) != by_id["a"].encode(tokenizer, raw=True)
    assert by_id["c"].encode(tokenizer) == [5, 6]


def test_a_larger_choice_contains_a_smaller_one_whatever_the_order_of_the_file(tmp_path):
    items = [message(f"item-{i}") for i in range(30)]
    forward = write_suite(tmp_path / "forward", {"one": items})
    backward = write_suite(tmp_path / "backward", {"one": items[::-1]})
    chosen = [item.id for item in load_suite(forward, max_prompts=5).items]
    assert chosen == [item.id for item in load_suite(backward, max_prompts=5).items]
    assert chosen == [item.id for item in load_suite(forward, max_prompts=12).items][:5]
    assert chosen != [f"item-{i}" for i in range(5)]


def test_spec_bench_is_one_set_a_task(tmp_path):
    items = [{"id": f"q{i}", "category": c, "turns": ["x"]} for i, c in enumerate(["qa", "rag", "qa"])]
    folder = write_suite(tmp_path, {"spec_bench": items, "other": [message("o")]})
    assert load_suite(folder).sets == ["spec_bench/qa", "spec_bench/rag", "other"]
    assert load_suite(folder, ["spec_bench"]).sets == ["spec_bench/qa", "spec_bench/rag"]
    assert load_suite(folder, ["spec_bench/rag"]).sets == ["spec_bench/rag"]
    assert [item.set for item in load_suite(folder, max_prompts=1).items].count("spec_bench/qa") == 1


def test_hashes_are_those_of_the_files_that_were_read(tmp_path):
    folder = write_suite(tmp_path, {"a": [message("1")], "b": [message("2")]})
    before = load_suite(folder, ["a"]).sha256
    assert list(before) == ["a.jsonl"]
    write_suite(tmp_path, {"a": [message("1", "changed")], "b": [message("2")]})
    assert load_suite(folder, ["a"]).sha256 != before


def test_a_set_that_must_not_be_committed_may_be_absent_unless_it_is_named(tmp_path):
    folder = write_suite(
        tmp_path, {"here": [message("1")], "away": [message("2")]}, away={"keep_out_of_commits": True}
    )
    (folder / "away.jsonl").unlink()
    assert load_suite(folder).sets == ["here"]
    with pytest.raises(InvalidRequest, match=r"'away' has no file 'away\.jsonl'"):
        load_suite(folder, ["away"])
    (folder / "here.jsonl").unlink()
    with pytest.raises(InvalidRequest, match=r"'here' has no file"):
        load_suite(folder)


@pytest.mark.parametrize(
    ("name", "message_"),
    [
        ("edieval", "no set 'edieval'; did you mean 'editeval'?; known: editeval, spec_bench"),
        ("spec_bench/nothing", "no set 'spec_bench/nothing'"),
        ("editeval/part", "no set 'editeval/part'"),
    ],
)
def test_an_unknown_set_is_named_with_those_there_are(tmp_path, name, message_):
    folder = write_suite(
        tmp_path, {"editeval": [message("1")], "spec_bench": [{"id": "2", "category": "qa", "turns": ["x"]}]}
    )
    with pytest.raises(InvalidRequest) as error:
        load_suite(folder, [name])
    assert message_ in str(error.value)


@pytest.mark.parametrize(
    ("manifest", "lines", "message_"),
    [
        (None, "", "no manifest.json"),
        ("{", "", "is no JSON"),
        ('{"a": "a.jsonl"}', "", 'objects with a "file"'),
        ('{"a": {"file": "a.jsonl"}}', "{", "a.jsonl:1 is no JSON"),
        ('{"a": {"file": "a.jsonl"}}', '{"messages": []}', 'needs an "id"'),
        ('{"a": {"file": "a.jsonl"}}', '{"id": "1"}', 'needs "messages", "turns" or "prompt_ids"'),
        ('{"a": {"file": "a.jsonl"}}', "\n", "no items"),
    ],
)
def test_what_is_no_suite_is_refused_in_one_sentence(tmp_path, manifest, lines, message_):
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest, encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    with pytest.raises(InvalidRequest) as error:
        load_suite(tmp_path)
    assert message_ in str(error.value)


def test_no_prompts_is_no_choice(tmp_path):
    with pytest.raises(InvalidRequest, match="at least 1, got 0"):
        load_suite(write_suite(tmp_path, {"a": [message("1")]}), max_prompts=0)


def test_a_file_that_is_not_utf_8_is_refused_in_one_sentence(tmp_path):
    folder = write_suite(tmp_path, {"one": [message("1")]})
    file = next(folder.glob("*.jsonl"))
    file.write_bytes(b'{"id": "caf\xe9", "messages": []}\n')
    with pytest.raises(InvalidRequest, match=f"{file.name} is not UTF-8"):
        load_suite(folder)


def test_line_separators_of_unicode_inside_a_string_do_not_end_a_line(tmp_path):
    item = {"id": "one", "messages": [{"role": "user", "content": "a\u2028b"}]}
    folder = write_suite(tmp_path, {"one": [item]})
    next(folder.glob("*.jsonl")).write_text(json.dumps(item, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [one.id for one in load_suite(folder).items] == ["one"]
