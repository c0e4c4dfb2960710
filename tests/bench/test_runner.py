"""The runner: rows that explain themselves, interleaving, resuming, and errors that stay errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from echodraft.bench import runner
from echodraft.bench.peer_process import PeerFailed, PeerProcess
from echodraft.bench.runner import BenchmarkSpec, is_loop, run_benchmark
from echodraft.errors import InvalidRequest
from tests.bench.test_suite import message, write_suite
from tests.tiny import byte_tokenizer, llama

METHODS = ("plain", "auto:budget=fixed", "prompt_lookup@lookup:budget=fixed", "hf:plain", "hf:prompt_lookup")
TOKENS = 24


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a tiny model and a suite of two sets."""
    folder = tmp_path_factory.mktemp("bench")
    model = llama()
    model.save_pretrained(folder / "tiny")
    byte_tokenizer().save_pretrained(folder / "tiny")
    sets = {
        "editeval": [message(f"e{i}", f"ab ab ab{i} ab ab") for i in range(2)],
        "other": [{"id": "o", "prompt_ids": [5, 6, 7, 5, 6]}],
    }
    write_suite(folder / "suite", sets)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ECHODRAFT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def spec_of(place: Path, out: Path, *methods: str, **changes) -> BenchmarkSpec:
    return BenchmarkSpec(
        suite=place / "suite",
        out=out,
        methods=methods or METHODS,
        model=str(place / "tiny"),
        max_new_tokens=TOKENS,
        dtype="float32",
        **changes,
    )


def rows_of(out: Path, name: str = "results") -> list[dict]:
    return [json.loads(line) for line in (out / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def finished(place, tmp_path_factory) -> Path:
    """A run with all methods, transformers in a process of its own."""
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECHODRAFT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return run_benchmark(spec_of(place, out))


def test_there_is_a_row_for_every_prompt_and_method_with_the_fields_promised(finished):
    rows = rows_of(finished)
    assert len(rows) == 3 * len(METHODS)
    assert {row["method"] for row in rows} == {"lookup", *METHODS} - {METHODS[2]}
    promised = {
        "method",
        "set",
        "prompt_id",
        "seconds",
        "prefill_seconds",
        "completion_tokens",
        "steps",
        "mat",
    }
    promised |= {"nodes", "identical", "ids_sha256", "prompt_tokens", "finish_reason", "first_difference"}
    for row in rows:
        assert promised <= set(row), row
        assert row["completion_tokens"] == TOKENS
        assert 0 < row["prefill_seconds"] < row["seconds"]
        assert row["mat"] == (TOKENS - row["prefill_tokens"]) / row["steps"]


def test_drafts_and_peers_give_the_text_of_plain_decoding(finished):
    rows = rows_of(finished)
    assert all(row["identical"] is True and row["first_difference"] is None for row in rows)
    assert all(row["identical_to_hf"] is True for row in rows if not row["method"].startswith("hf:"))
    for prompt in {row["prompt_id"] for row in rows}:
        assert len({row["ids_sha256"] for row in rows if row["prompt_id"] == prompt}) == 1


def test_steps_and_nodes_are_those_of_the_forwards(finished):
    by_method: dict[str, list[dict]] = {}
    for row in rows_of(finished):
        by_method.setdefault(row["method"], []).append(row)
    for row in by_method["plain"] + by_method["hf:plain"]:
        assert (row["steps"], row["nodes"], row["prefill_tokens"]) == (TOKENS - 1, 0, 1)
    for method in ("auto:budget=fixed", "lookup", "hf:prompt_lookup"):
        assert sum(row["nodes"] for row in by_method[method]) > 0
        assert sum(row["steps"] for row in by_method[method]) < 3 * (TOKENS - 1)  # some were accepted
    accepted = sum(sum(row["accepted_by_source"].values()) for row in by_method["lookup"])
    saved = sum(TOKENS - 1 - row["steps"] for row in by_method["lookup"])
    assert accepted == saved


def test_methods_are_interleaved_and_take_turns(finished):
    order: dict[str, list[str]] = {}
    for row in rows_of(finished, "ids"):
        order.setdefault(row["prompt_id"], []).append(row["method"])
    names = [row["method"] for row in rows_of(finished, "ids")]
    # A prompt is done with before the next one begins ...
    assert names == [name for of_prompt in order.values() for name in of_prompt]
    # ... and the order moves on by one.
    first, second, third = order.values()
    assert second == first[1:] + first[:1]
    assert third == second[1:] + second[:1]


def test_the_run_says_what_it_was_and_nothing_of_this_machine(finished, place):
    text = (finished / "run.json").read_text(encoding="utf-8")
    run = json.loads(text)
    assert run["schema"] == "echodraft.bench/1"
    assert run["spec"]["model"] == "tiny"
    assert run["spec"]["suite"] == "suite"
    assert run["model"] == {"name": "tiny", "dtype": "float32", "device": "cpu"}
    assert run["latency"]["rows"][0] == 1
    assert set(run["data"]["sha256"]) == {"editeval.jsonl", "other.jsonl"}
    assert run["peers"]["attention"] in ("eager", "sdpa")
    assert str(place) not in text
    assert str(finished) not in text


def test_a_run_that_was_killed_goes_on_where_it_stood(place, tmp_path):
    spec = spec_of(place, tmp_path, "plain", "prompt_lookup")

    class Killed(BaseException):
        pass

    def kill_at_the_second_prompt(what: str, done: int, total: int) -> None:
        if what.startswith(("editeval", "other")) and done == 1:
            raise Killed

    with pytest.raises(Killed):
        run_benchmark(spec, kill_at_the_second_prompt)
    before = rows_of(tmp_path)
    assert len(before) == 2
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"method": "plain", "set": "edi')  # killed while writing

    run_benchmark(spec)
    lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    after = [json.loads(line) for line in lines if line.endswith("}")]
    assert after[:2] == before
    assert sorted((row["method"], row["prompt_id"]) for row in after) == sorted(
        (method, prompt) for method in ("plain", "prompt_lookup") for prompt in ("e0", "e1", "o")
    )
    assert all(row["identical"] is True for row in after)
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [earlier["commit"] for earlier in run["earlier"]] == [run["commit"]]
    assert run["earlier"][0]["date"] <= run["date"]


def test_rows_that_were_lost_are_compared_with_what_was_kept(place, tmp_path):
    spec = spec_of(place, tmp_path, "plain", "prompt_lookup")
    run_benchmark(spec)
    rows = rows_of(tmp_path)
    kept = [row for row in rows if row["method"] == "plain"]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    run_benchmark(spec)
    again = rows_of(tmp_path)[len(kept) :]
    assert [row["method"] for row in again] == ["prompt_lookup"] * 3
    assert all(row["identical"] is True for row in again)


def test_a_finished_run_loads_no_model(place, finished, monkeypatch):
    monkeypatch.setattr(runner, "load_model", None)
    before = rows_of(finished)
    run_benchmark(spec_of(place, finished))
    assert rows_of(finished) == before


def test_another_spec_in_the_same_folder_is_an_error_that_names_the_difference(place, finished):
    with pytest.raises(InvalidRequest) as error:
        run_benchmark(replace(spec_of(place, finished), max_new_tokens=TOKENS + 1))
    assert f"max_new_tokens: {TOKENS} there, {TOKENS + 1} now" in str(error.value)
    with pytest.raises(InvalidRequest, match="methods:"):
        run_benchmark(spec_of(place, finished, "plain"))


def test_other_prompts_in_the_same_folder_are_an_error(place, tmp_path):
    suite = write_suite(tmp_path / "suite", {"one": [message("a")]})
    spec = replace(spec_of(place, tmp_path / "out", "plain"), suite=suite)
    run_benchmark(spec)
    write_suite(suite, {"one": [message("a", "changed")]})
    with pytest.raises(InvalidRequest, match="other prompts"):
        run_benchmark(spec)


def test_results_without_a_run_and_an_unreadable_run_are_errors(place, tmp_path):
    (tmp_path / "results.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"no run\.json"):
        run_benchmark(spec_of(place, tmp_path, "plain"))
    (tmp_path / "run.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="not readable"):
        run_benchmark(spec_of(place, tmp_path, "plain"))


def test_a_prompt_that_fails_is_a_row_with_its_error_and_the_others_run(place, tmp_path):
    items = [{"id": "bad", "prompt_ids": [5, 10_000]}, {"id": "good", "prompt_ids": [5, 6]}]
    suite = write_suite(tmp_path / "suite", {"one": items})
    spec = replace(spec_of(place, tmp_path / "out", "plain", "hf:plain"), suite=suite)
    rows = {(row["method"], row["prompt_id"]): row for row in rows_of(run_benchmark(spec))}
    assert rows["plain", "bad"]["error"].startswith("InvalidRequest: ids: 10000 is no token id")
    assert "IndexError" in rows["hf:plain", "bad"]["error"]
    for row in (rows["plain", "bad"], rows["hf:plain", "bad"]):
        assert set(row) == {"method", "set", "prompt_id", "error"}  # no number at all
    assert rows["plain", "good"]["identical_to_hf"] is True
    assert rows["hf:plain", "good"]["completion_tokens"] == TOKENS


def test_without_a_plain_run_nothing_is_said_about_the_text(place, tmp_path):
    rows = rows_of(run_benchmark(spec_of(place, tmp_path, "prompt_lookup", max_prompts=1)))
    assert [(row["identical"], row["identical_to_hf"]) for row in rows] == [(None, None)] * 2


def test_a_text_that_differs_is_found_and_judged(place, tmp_path, monkeypatch):
    original = runner._Run._own

    def one_wrong_token(self, method, prompt):
        answer = original(self, method, prompt)
        if method.name == "prompt_lookup":
            answer["ids"][7] = (answer["ids"][7] + 1) % 200
        return answer

    monkeypatch.setattr(runner._Run, "_own", one_wrong_token)
    rows = rows_of(run_benchmark(spec_of(place, tmp_path, "plain", "prompt_lookup", max_prompts=1)))
    for row in rows:
        wrong = row["method"] == "prompt_lookup"
        assert (row["identical"], row["first_difference"]) == ((False, 7) if wrong else (True, None))
        if wrong:
            assert row["difference"]["verdict"] == "different"


@pytest.mark.parametrize(
    ("changes", "message_"),
    [
        ({"methods": ()}, "at least one method"),
        ({"methods": ("auto", "auto")}, "two methods are called 'auto'"),
        ({"methods": ("atuo",)}, "did you mean 'auto'"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1"),
        ({"threads": -1}, "threads must be"),
        ({"min_value": 2.0}, "min_value must be between 0 and 1"),
    ],
)
def test_a_wrong_spec_is_refused_before_anything_is_loaded(place, tmp_path, changes, message_):
    with pytest.raises(InvalidRequest) as error:
        replace(spec_of(place, tmp_path), **changes)
    assert message_ in str(error.value)


def test_a_model_that_transformers_cannot_load_fails_by_name(tmp_path):
    with pytest.raises(PeerFailed, match="transformers alone cannot load the model"):
        PeerProcess(str(tmp_path / "nothing"), "float32", "cpu", None)


def test_a_process_that_died_is_not_waited_for(place):
    with PeerProcess(str(place / "tiny"), "float32", "cpu", 1) as peers:
        peers._process.kill()
        peers._process.wait()
        with pytest.raises(PeerFailed, match="ended"):
            peers.generate("hf:plain", [5, 6], 4, [])


@pytest.mark.parametrize(
    ("ids", "loop"),
    [
        (list(range(100)), False),
        (list(range(50)) + [7] * 50, True),
        (list(range(50)) + [1, 2, 3] * 20, True),
        (list(range(50)) + [1, 2, 3] * 16 + [9, 9], False),
        ([7] * 40, False),  # too short to tell
        ([], False),
    ],
)
def test_a_loop_is_a_last_half_that_repeats(ids, loop):
    assert is_loop(ids) is loop
