"""`echodraft generate`: what it prints, where its prompt comes from, what its options do."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from echodraft import Engine, Result
from echodraft.cli.compare import compare
from echodraft.cli.display import summary
from tests import tiny

PROMPT = "one two three, one two three, one two"
FIXED = ("--budget", "fixed", "--num-speculative-tokens", 12, "--max-new-tokens", 60)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
STATS = {
    "steps",
    "mat",
    "nodes",
    "accepted_by_source",
    "drafted_by_source",
    "acceptance_by_depth",
    "draft_seconds",
    "verify_seconds",
    "commit_seconds",
    "mean_budget",
    "coverage",
    "budgets",
}


@pytest.fixture
def plain(tiny_model_folder, one_thread) -> Result:
    """What the model says to PROMPT, decoded plainly by the library."""
    engine = Engine.from_pretrained(str(tiny_model_folder))
    return engine.generate(PROMPT, drafter="none", max_new_tokens=60)


@pytest.fixture
def answer(run, tiny_model_folder):
    """`answer(PROMPT, "--raw")`: the object that --json prints."""

    def call(*arguments: object, stdin: bytes = b"") -> dict[str, Any]:
        outcome = run("generate", *FIXED, "--model", tiny_model_folder, "--json", *arguments, stdin=stdin)
        assert (outcome.code, outcome.err) == (0, "")
        (line,) = outcome.out.splitlines()
        result: dict[str, Any] = json.loads(line)
        return result

    return call


# --- what it prints -------------------------------------------------------------------------------


def test_the_text_and_nothing_else_goes_to_stdout_and_one_line_to_stderr(run, tiny_model_folder, plain):
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder)
    assert outcome.code == 0
    assert outcome.out == plain.text + "\n"
    (line,) = outcome.err.splitlines()
    figures = re.fullmatch(
        r"60 tokens in [\d.]+ s \([\d.]+ tokens/s\), MAT ([\d.]+), "
        r"prefill [\d.]+ s, draft [\d.]+ s, verify [\d.]+ s",
        line,
    )
    assert figures, line
    assert float(figures[1]) > 1, "drafts were accepted"


def test_without_stream_the_text_is_the_same(run, tiny_model_folder, plain):
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder, "--no-stream")
    assert outcome.out == plain.text + "\n"


def test_json_is_one_object_with_the_fields_promised(answer, plain):
    result = answer(PROMPT)
    assert set(result) == {
        "text",
        "token_ids",
        "finish_reason",
        "prompt_tokens",
        "completion_tokens",
        "seconds",
        "prefill_seconds",
        "stats",
    }
    assert set(result["stats"]) == STATS
    assert result["token_ids"] == plain.token_ids
    assert result["text"] == plain.text
    assert result["finish_reason"] == "length"
    assert result["prompt_tokens"] == plain.prompt_tokens
    assert result["completion_tokens"] == 60
    assert 0 < result["prefill_seconds"] < result["seconds"]
    stats = result["stats"]
    accepted = sum(stats["accepted_by_source"].values())
    assert accepted > 0
    assert stats["steps"] + accepted == 59, "the prefill decides one token, every step one and those accepted"
    assert stats["mat"] == pytest.approx(59 / stats["steps"])
    assert stats["nodes"] == sum(stats["drafted_by_source"].values())


def test_nothing_generated_is_no_error(run, tiny_model_folder):
    outcome = run("generate", PROMPT, "--max-new-tokens", 0, "--model", tiny_model_folder, "--compare")
    assert (outcome.code, outcome.out) == (0, "\n")
    assert "nothing generated" in outcome.err


# --- compare --------------------------------------------------------------------------------------


def test_compare_adds_plain_decoding_of_the_same_run(answer, plain):
    result = answer(PROMPT, "--compare")
    assert result["token_ids"] == plain.token_ids
    assert set(result["plain"]) == {"seconds", "identical", "speedup", "first_difference"}
    assert result["plain"]["identical"] is True
    assert result["plain"]["first_difference"] is None
    assert result["plain"]["speedup"] == pytest.approx(result["plain"]["seconds"] / result["seconds"])


def test_compare_prints_both_speeds_the_ratio_and_the_verdict(run, tiny_model_folder):
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder, "--compare")
    drafted, beside = outcome.err.splitlines()
    assert drafted.startswith("60 tokens in")
    assert re.fullmatch(
        r"plain: 60 tokens in [\d.]+ s \([\d.]+ tokens/s\); [\d.]+x as fast, ids identical", beside
    ), beside


@pytest.mark.parametrize(
    ("plain_ids", "drafted_ids", "difference"),
    [
        ([5, 6, 7], [5, 6, 7], None),
        ([5, 6, 7], [5, 9, 7], {"position": 1, "plain": 6, "drafted": 9}),
        ([5, 6, 7], [5, 6], {"position": 2, "plain": 7, "drafted": None}),
        ([5], [5, 6], {"position": 1, "plain": None, "drafted": 6}),
    ],
)
def test_the_first_difference_is_told(plain, plain_ids, drafted_ids, difference):
    found = compare(
        dataclasses.replace(plain, token_ids=drafted_ids, seconds=2.0),
        dataclasses.replace(plain, token_ids=plain_ids, seconds=5.0),
    )
    assert found.first_difference == difference
    assert found.identical is (difference is None)
    assert found.speedup == 2.5
    expected = "ids identical" if difference is None else f"differ at position {difference['position']}"
    assert expected in str(found)


def test_a_difference_is_reported_and_not_hidden(run, tiny_model_folder, monkeypatch):
    """The comparison looks at what was decoded: another plain result is noticed."""
    original = Engine.stream

    def tampered(self: Engine, *arguments: Any, **request: Any) -> Any:
        if (drafting := request.get("drafting")) is not None and drafting.drafter == "none":
            request["ids"] = [*request["ids"], 7]
        return original(self, *arguments, **request)

    monkeypatch.setattr(Engine, "stream", tampered)
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder, "--compare")
    assert "ids differ at position" in outcome.err


# --- drafts in colour -----------------------------------------------------------------------------


def test_accepted_tokens_are_coloured_where_there_are_colours(run, tiny_model_folder, plain, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder, "--show-drafts")
    assert ESCAPE.sub("", outcome.out) == plain.text + "\n"
    assert re.search(r"\x1b\[9\dm[^\x1b]+\x1b\[0m", outcome.out)
    assert ESCAPE.sub("", outcome.err).startswith("drafted: ")


def test_without_a_terminal_there_are_counts_but_no_colours(run, tiny_model_folder, plain, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    outcome = run("generate", PROMPT, *FIXED, "--model", tiny_model_folder, "--show-drafts")
    assert outcome.out == plain.text + "\n"
    drafted = re.match(r"drafted: (.*); by the model itself: (\d+)\n", outcome.err)
    assert drafted
    counts = [int(part.rsplit(" ", 1)[1]) for part in drafted[1].split(", ")]
    assert sum(counts) > 0
    assert sum(counts) + int(drafted[2]) == 60


def test_the_sources_in_json_are_those_counted(answer):
    result = answer(PROMPT, "--show-drafts")
    assert len(result["sources"]) == 60
    drafted = [source for source in result["sources"] if source != "root"]
    counted = result["stats"]["accepted_by_source"]
    assert {name: drafted.count(name) for name in set(drafted)} == {k: v for k, v in counted.items() if v}


# --- where the prompt comes from ------------------------------------------------------------------


def test_a_file_and_standard_input_are_the_same_as_the_argument(answer, plain, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT, encoding="utf-8")
    assert answer("-f", file)["token_ids"] == plain.token_ids
    assert answer("-", stdin=PROMPT.encode())["token_ids"] == plain.token_ids


def test_text_is_taken_as_it_stands(answer, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes("naïve — 你好\r\n".encode())
    assert answer("--raw", "-f", file)["prompt_tokens"] == len("naïve — 你好\r\n".encode())


def test_ids_are_taken_as_they_stand(answer, tmp_path):
    file = tmp_path / "ids.json"
    file.write_text(json.dumps(list(PROMPT.encode())), encoding="utf-8")
    assert answer("--ids-file", file)["prompt_tokens"] == len(PROMPT)


def test_raw_leaves_the_template_out_and_system_adds_to_it(answer):
    chat, raw, system = answer("Hi"), answer("Hi", "--raw"), answer("Hi", "--system", "Be brief.")
    assert raw["prompt_tokens"] == 2 < chat["prompt_tokens"]
    assert system["prompt_tokens"] > chat["prompt_tokens"] + len("Be brief.")


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_max_new_tokens_is_exact(run, tiny_model_folder, plain, limit):
    outcome = run("generate", PROMPT, "--max-new-tokens", limit, "--model", tiny_model_folder, "--json")
    assert json.loads(outcome.out)["token_ids"] == plain.token_ids[:limit]


def test_a_stop_token_ends_the_output(answer, plain):
    stop = next(
        token for i, token in enumerate(plain.token_ids) if i > 3 and token not in plain.token_ids[:i]
    )
    result = answer(PROMPT, "--stop-token-id", stop)
    assert result["finish_reason"] == "stop"
    assert result["token_ids"] == plain.token_ids[: plain.token_ids.index(stop) + 1]


def test_ignore_eos_goes_on_after_the_models_end_token(run, plain, tmp_path):
    end = plain.token_ids[8]
    model = tiny.llama(max_position_embeddings=1024, eos_token_id=end)
    folder = tiny.save(tmp_path / "ending", model)
    command = ("generate", PROMPT, *FIXED, "--model", folder, "--json")
    ended, ignored = json.loads(run(*command).out), json.loads(run(*command, "--ignore-eos").out)
    assert ended["finish_reason"] == "stop"
    assert ended["token_ids"] == plain.token_ids[: plain.token_ids.index(end) + 1]
    assert ignored["token_ids"] == plain.token_ids


def test_the_drafter_and_its_options_reach_the_engine(answer):
    nothing = answer(PROMPT, "--drafter", "none")
    assert (nothing["stats"]["nodes"], nothing["stats"]["mat"]) == (0, 1)
    short = answer(PROMPT, "--drafter", "suffix_automaton", "--drafter-option", "max_length=1")
    assert set(short["stats"]["drafted_by_source"]) == {"suffix_automaton"}
    assert len(short["stats"]["acceptance_by_depth"]) == 1


def test_the_most_drafted_tokens_are_not_exceeded(answer):
    result = answer(PROMPT, "--num-speculative-tokens", 3)
    assert max(int(nodes) for nodes in result["stats"]["budgets"]) <= 3


def test_threads_and_recalibrate_do_what_they_say(run, tiny_model_folder, own_cache):
    import torch

    command = ("generate", PROMPT, "--max-new-tokens", 3, "--model", tiny_model_folder, "--threads", 2)
    assert run(*command).code == 0
    assert torch.get_num_threads() == 2
    (curve,) = (own_cache / "latency").glob("*.json")
    measured = curve.stat().st_mtime_ns
    run(*command)
    assert curve.stat().st_mtime_ns == measured, "a kept curve is used"
    run(*command, "--recalibrate")
    assert curve.stat().st_mtime_ns > measured


def test_an_aborted_summary_says_so(plain):
    assert summary(dataclasses.replace(plain, finish_reason="abort")).endswith(", aborted")
    assert not summary(plain).endswith("aborted")


# --- the embedded model ---------------------------------------------------------------------------


@pytest.mark.usefixtures("embedded_cache", "one_thread")
def test_the_embedded_model_answers_end_to_end(run):
    line = "the quick brown fox jumps over the lazy dog"
    outcome = run(
        "generate", f"Repeat this line exactly: {line}", "--max-new-tokens", 24, "--compare", "--json"
    )
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert "quick brown fox jumps over the lazy dog" in result["text"]
    assert result["finish_reason"] == "stop"
    assert result["plain"]["identical"] is True
    assert sum(result["stats"]["accepted_by_source"].values()) > 0
