"""What only a process shows: Ctrl-C, pipes, start-up, and silence where nobody looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from echodraft import Engine, Stream
from tests.cli.conftest import ROOT

ENDLESS = ("--max-new-tokens", 500_000, "--drafter", "none")


def test_ctrl_c_keeps_the_text_and_says_aborted(start, long_model_folder):
    process = start("generate", "go on", "--model", long_model_folder, *ENDLESS)
    assert process.stdout is not None
    first = process.stdout.read(20)  # the generation is under way
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert len(first) == 20
    assert process.returncode == 130
    (line,) = err.decode().splitlines()
    assert line.endswith(", aborted")
    assert int(line.split()[0]) > 0
    assert (first + rest).endswith(b"\n")


def interrupted_at(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """A Ctrl-C while the stream works on this piece, counted over all streams of the process."""
    original, seen = Stream._next_piece, [0]

    def next_piece(self: Stream) -> str:
        seen[0] += 1
        if seen[0] == piece:
            signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Stream, "_next_piece", next_piece)


def test_ctrl_c_with_json_gives_the_object_so_far(run, tiny_model_folder, monkeypatch):
    command = ("generate", "go on", "--model", tiny_model_folder, "--json", "--max-new-tokens", 200)
    whole = json.loads(run(*command).out)
    interrupted_at(monkeypatch, 4)
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background of a shell
    outcome = run(*command)
    assert (outcome.code, outcome.err) == (130, "")
    result = json.loads(outcome.out)
    assert result["finish_reason"] == "abort"
    assert 0 < result["completion_tokens"] < 200
    assert result["token_ids"] == whole["token_ids"][: result["completion_tokens"]]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_leaves_no_comparison(run, tiny_model_folder, monkeypatch):
    original, streams = Stream._next_piece, []

    def next_piece(self: Stream) -> str:
        if self not in streams:
            streams.append(self)
            if len(streams) == 3:  # after the warm-up and the drafted run: the plain one
                signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Stream, "_next_piece", next_piece)
    command = ("--compare", "--json", "--max-new-tokens", 60, "--drafter", "none")
    outcome = run("generate", "go on", "--model", tiny_model_folder, *command)
    assert outcome.code == 130
    result = json.loads(outcome.out)
    assert result["completion_tokens"] == 60
    assert "plain" not in result


def test_ctrl_c_in_a_long_prefill_ends_it(run, tiny_model_folder, monkeypatch):
    from echodraft.targets.huggingface import target

    monkeypatch.setattr(target, "PREFILL_CHUNK", 8)
    chunks: list[int] = []
    original = target.HuggingFaceTarget._forward

    def forward(self, *arguments, **options):
        chunks.append(1)
        if len(chunks) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments, **options)

    monkeypatch.setattr(target.HuggingFaceTarget, "_forward", forward)
    outcome = run("generate", "x" * 300, "--model", tiny_model_folder, "--budget", "fixed", "--json")
    assert outcome.code == 130
    result = json.loads(outcome.out)
    assert (result["finish_reason"], result["token_ids"]) == ("abort", [])
    assert len(chunks) == 3


def test_ctrl_c_while_loading_says_aborted(run, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "from_pretrained", interrupted)
    outcome = run("generate", "x")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "aborted\n")


def test_a_second_ctrl_c_interrupts_at_once(run, tiny_model_folder, monkeypatch):
    original = Stream._next_piece

    def twice(self: Stream) -> str:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Stream, "_next_piece", twice)
    outcome = run("generate", "x", "--model", tiny_model_folder, "--json")
    assert outcome.code == 130
    assert json.loads(outcome.out)["token_ids"] == []


def test_a_reader_that_has_enough_is_no_error(start, long_model_folder):
    with start("generate", "go on", "--model", long_model_folder, *ENDLESS) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


def test_nothing_but_the_summary_is_written_where_nobody_looks(start, tiny_model_folder):
    """Neither progress nor notices of other libraries, with loading, calibration and prefill."""
    process = start("generate", "go on", "--model", tiny_model_folder, "--max-new-tokens", 5)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(err.splitlines()) == 1
    assert b"\x1b" not in out + err
    assert b"\r" not in err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["generate", "--help"], ["bench", "run", "--help"]])
def test_help_needs_neither_torch_nor_transformers(arguments):
    program = (
        "import sys\nfrom echodraft.cli.main import main\n"
        f"assert main({arguments}) == 0\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    usage, _, first, *_ = done.stdout.splitlines()
    assert usage.startswith("Usage: echodraft")
    assert first.strip().startswith("$ echodraft "), "help opens with an example"


def test_the_version_is_printed(run):
    import echodraft

    assert run("--version").out == f"echodraft {echodraft.__version__}\n"
