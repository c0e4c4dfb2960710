"""A user's mistake is one line with what to do and exit code 2; nothing is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers as tf

from echodraft import Engine
from echodraft.targets.huggingface import loading
from tests import tiny

# What it says, and the command line; all found out before a model is loaded.
BEFORE_LOADING: dict[str, tuple[str, list[object]]] = {
    "no prompt": ("no prompt; give it as PROMPT", []),
    "empty prompt": ("the prompt is empty", [""]),
    "blank prompt": ("the prompt is empty", [" \n"]),
    "empty standard input": ("standard input is empty", ["-"]),
    "two prompts": ("PROMPT and --file are both given", ["x", "-f", "prompt.txt"]),
    "text and ids": ("--file and --ids-file are both given", ["-f", "prompt.txt", "--ids-file", "ids.json"]),
    "raw with system": ("--system needs the chat template", ["x", "--raw", "--system", "y"]),
    "ids with system": ("--system does not go with --ids-file", ["--ids-file", "ids.json", "--system", "y"]),
    "ids with raw": ("--raw does not go with --ids-file", ["--ids-file", "ids.json", "--raw"]),
    "no such prompt file": ("cannot read missing.txt (no such file", ["-f", "missing.txt"]),
    "a folder as prompt": ("cannot read . (is a directory)", ["-f", "."]),
    "empty prompt file": ("the file empty.txt is empty", ["-f", "empty.txt"]),
    "prompt file not UTF-8": ("latin.txt is not UTF-8 text (byte 3)", ["-f", "latin.txt"]),
    "no such ids file": ("cannot read missing.json", ["--ids-file", "missing.json"]),
    "ids file no JSON": ("prompt.txt is no JSON", ["--ids-file", "prompt.txt"]),
    "ids file no list": ("object.json is no JSON list", ["--ids-file", "object.json"]),
    "ids file with texts": ("words.json: 'a' is no token id", ["--ids-file", "words.json"]),
    "ids file with fractions": ("fractions.json: 1.5 is no token id", ["--ids-file", "fractions.json"]),
    "ids file with negatives": ("negative.json: -1 is no token id", ["--ids-file", "negative.json"]),
    "ids file empty list": ("none.json is an empty list", ["--ids-file", "none.json"]),
    "no such option": ("No such option: --drafer", ["x", "--drafer", "srsd"]),
    "option without value": ("requires an argument", ["x", "--drafter"]),
    "unknown drafter": ("no drafter 'srds'; did you mean 'srsd'?", ["x", "--drafter", "srds"]),
    "unknown drafter option": (
        "has no option 'max_lenght'; did you mean 'max_length'?",
        ["x", "--drafter", "suffix_automaton", "--drafter-option", "max_lenght=3"],
    ),
    "drafter option without =": ("written key=value", ["x", "--drafter-option", "max_length"]),
    "negative drafter option": (
        "must be a whole number of at least 1",
        ["x", "--drafter", "suffix_automaton", "--drafter-option", "max_length=-3"],
    ),
    "NaN drafter option": (
        "must be a whole number, got 'nan'",
        ["x", "--drafter", "suffix_automaton", "--drafter-option", "max_length=nan"],
    ),
    "negative max_new_tokens": ("'--max-new-tokens'", ["x", "--max-new-tokens", "-1"]),
    "NaN max_new_tokens": ("'--max-new-tokens'", ["x", "--max-new-tokens", "nan"]),
    "negative drafts": ("'--num-speculative-tokens'", ["x", "--num-speculative-tokens", "-1"]),
    "unknown budget": ("'--budget'", ["x", "--budget", "big"]),
    "NaN min_value": ("min_value must be between 0 and 1, got nan", ["x", "--min-value", "nan"]),
    "min_value above 1": ("min_value must be between 0 and 1, got 2.0", ["x", "--min-value", "2"]),
    "no threads": ("'--threads'", ["x", "--threads", "0"]),
    "unknown dtype": ("no dtype 'float33'; known: auto", ["x", "--dtype", "float33"]),
    "unknown device": ("no device 'gpu'; known: auto", ["x", "--device", "gpu"]),
    "absent device": ("device 'cuda:99' is not there", ["x", "--device", "cuda:99"]),
    "negative stop token": ("'--stop-token-id'", ["x", "--stop-token-id", "-1"]),
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files named above, in the current folder."""
    monkeypatch.chdir(tmp_path)
    contents = {
        "prompt.txt": "Say hello.",
        "empty.txt": "\n",
        "ids.json": "[1, 2, 3]",
        "object.json": '{"ids": [1]}',
        "words.json": '["a"]',
        "fractions.json": "[1.5]",
        "negative.json": "[-1]",
        "none.json": "[]",
        "large.json": "[1, 260]",
    }
    for name, content in contents.items():
        Path(name).write_text(content, encoding="utf-8")
    Path("latin.txt").write_bytes("caf\xe9".encode("latin-1"))


def complaint(outcome) -> str:
    """The one line on stderr."""
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    return str(line)


@pytest.mark.parametrize("case", BEFORE_LOADING)
def test_a_mistake_is_told_before_a_model_is_loaded(run, monkeypatch, case):
    def loaded(*arguments, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(Engine, "from_pretrained", loaded)
    expected, arguments = BEFORE_LOADING[case]
    assert expected in complaint(run("generate", *arguments))


def test_ids_of_no_token_and_a_prompt_too_long_start_nothing(run, tiny_model_folder, monkeypatch):
    def ran(*arguments, **options):
        raise AssertionError("something was computed")

    monkeypatch.setattr("echodraft.targets.huggingface.target.HuggingFaceTarget.prefill", ran)
    monkeypatch.setattr("echodraft.targets.huggingface.target.HuggingFaceTarget.time_forward", ran)
    for flags in ((), ("--compare",)):
        model = ("--model", tiny_model_folder, *flags)
        too_large = complaint(run("generate", "--ids-file", "large.json", *model))
        assert "260 is no token id of this model (0 to 259)" in too_large
        too_long = complaint(run("generate", "x" * 2000, *model))
        assert "the model's context ends at 1,024; shorten it" in too_long
        stop = complaint(run("generate", "x", "--stop-token-id", 999, *model))
        assert "999 is no token id of this model" in stop


def test_no_such_model(run, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "no such model file or folder: ./nowhere" in complaint(
        run("generate", "x", "--model", "./nowhere")
    )
    assert "no such model file or folder" in complaint(run("generate", "x", "--model", "missing.gguf"))
    assert "is a file but no .gguf" in complaint(run("generate", "x", "--model", "prompt.txt"))
    assert "no config.json and no .gguf file" in complaint(run("generate", "x", "--model", "."))
    assert "name is empty" in complaint(run("generate", "x", "--model", ""))
    hub = complaint(run("generate", "x", "--model", "nobody/nothing", "--offline"))
    assert "check the name, the network or --offline" in hub


def test_models_that_generate_no_text_this_way(run, tmp_path):
    tf.T5Config().save_pretrained(tmp_path / "t5")
    tf.ResNetConfig().save_pretrained(tmp_path / "resnet")
    encoder = complaint(run("generate", "x", "--model", tmp_path / "t5"))
    assert "is an encoder-decoder model (t5)" in encoder
    vision = complaint(run("generate", "x", "--model", tmp_path / "resnet"))
    assert "is not a causal language model; choose one that generates text" in vision


def test_too_little_memory(run, tmp_path):
    huge = tiny.SIZES | {"hidden_size": 2**16, "intermediate_size": 2**18, "num_hidden_layers": 64}
    tf.LlamaConfig(**huge).save_pretrained(tmp_path / "huge")
    message = complaint(run("generate", "x", "--model", tmp_path / "huge"))
    assert "GiB" in message
    assert "choose a smaller model or a half-precision dtype" in message


def test_broken_gguf_files(run, tmp_path):
    (tmp_path / "wrong.gguf").write_bytes(b"GGML" + bytes(100))
    assert "is not a GGUF file" in complaint(run("generate", "x", "--model", tmp_path / "wrong.gguf"))
    with Path(loading.default_model()).open("rb") as whole:
        (tmp_path / "header.gguf").write_bytes(whole.read(100))
        whole.seek(0)
        (tmp_path / "half.gguf").write_bytes(whole.read(3 * 2**20))
    for name in ("header.gguf", "half.gguf"):
        message = complaint(run("generate", "x", "--model", tmp_path / name))
        assert "it may be damaged: download it again" in message, name
    assert not list((loading.cache_folder() / "models").glob("*")), "nothing is left behind"


def test_a_model_without_chat_template_needs_raw(run, tmp_path):
    tokenizer = tiny.byte_tokenizer()
    tokenizer.chat_template = None
    folder = tiny.save(tmp_path / "base", tiny.llama(), tokenizer)
    assert "give a raw prompt (--raw" in complaint(run("generate", "x", "--model", folder))
    assert run("generate", "x", "--model", folder, "--raw", "--max-new-tokens", 2).code == 0


def test_mistakes_of_other_commands(run):
    assert "No such command 'generat'" in complaint(run("generat", "x"))
    assert "no such model file or folder" in complaint(run("doctor", "--model", "./nowhere", "--json"))
    assert "'--suite'" in complaint(run("bench", "run", "--out", "out"))
    no_suite = complaint(run("bench", "run", "--suite", ".", "--out", "out", "--methods", "plain"))
    assert "manifest.json" in no_suite
    unknown = complaint(run("bench", "run", "--suite", ".", "--out", "out", "--methods", "plane"))
    assert "no method 'plane'; did you mean 'plain'?" in unknown
    assert not Path("out").exists()


def test_a_bug_is_not_made_up_as_a_mistake(run, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Engine, "from_pretrained", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run("generate", "x")


def test_a_bug_ends_the_process_with_1_and_its_traceback(start, tmp_path):
    """A module that breaks stands for the bug: torch, which every command but --help needs."""
    (tmp_path / "torch.py").write_text("raise ZeroDivisionError('a bug')\n", encoding="utf-8")
    process = start("drafters", cwd=tmp_path)  # `python -m` looks in the current folder first
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert b"Traceback" in err
    assert b"ZeroDivisionError: a bug" in err


def test_ids_may_be_given_with_json_output_only_on_success(run, tiny_model_folder):
    outcome = run("generate", "--ids-file", "ids.json", "--model", tiny_model_folder, "--json")
    assert json.loads(outcome.out)["prompt_tokens"] == 3
    assert run("generate", "--ids-file", "large.json", "--model", tiny_model_folder, "--json").out == ""
