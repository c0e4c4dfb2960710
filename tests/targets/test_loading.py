"""Loading: what is there and fits is loaded, everything else is refused in one sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from echodraft.errors import InvalidRequest, ModelNotUsable, OutOfMemory
from echodraft.targets.huggingface import loading
from echodraft.targets.huggingface.architectures import wrap
from echodraft.targets.huggingface.loading import LoadOptions, cache_folder, default_model, load_model
from tests import tiny
from tests.doubles import prompt_of, run

HERE = "echodraft.targets.huggingface.loading"
OFFLINE = LoadOptions(offline=True)
QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model's folder, to be damaged."""
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "copy"))


def one_sentence(error: BaseException) -> str:
    """The message, which is one line and one sentence without a full stop."""
    text = str(error)
    assert "\n" not in text
    assert not text.endswith(".")
    assert ". " not in text.replace("...", "")
    return text


# --- what works ------------------------------------------------------------------------------------


def test_a_folder_is_loaded_in_fp32_on_a_cpu(tiny_model_folder):
    model, tokenizer = load_model(str(tiny_model_folder), LoadOptions(device="cpu"))
    assert (model.dtype, model.device.type, model.training) == (torch.float32, "cpu", False)
    assert tokenizer.decode(tokenizer("hé")["input_ids"]) == "hé"
    built = tiny.llama(max_position_embeddings=1024)
    assert run(wrap(model), prompt_of(1)).ids == run(wrap(built), prompt_of(1)).ids


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("float16", torch.float16)])
def test_the_dtype_asked_for_is_the_one_loaded(name, dtype, tiny_model_folder):
    model, _ = load_model(str(tiny_model_folder), LoadOptions(dtype=name, device="cpu"))
    assert model.dtype == dtype


def test_progress_begins_and_ends(tiny_model_folder):
    seen: list[tuple[str, int, int]] = []
    load_model(str(tiny_model_folder), progress=lambda *step: seen.append(step))
    assert seen == [("loading", 0, 1), ("loading", 1, 1)]


def test_loading_leaves_the_logging_of_transformers_as_it_was(tiny_model_folder):
    before = tf.logging.get_verbosity(), tf.logging.is_progress_bar_enabled()
    load_model(str(tiny_model_folder))
    assert (tf.logging.get_verbosity(), tf.logging.is_progress_bar_enabled()) == before


# --- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "name is empty"),
        ("  ", "name is empty"),
        ("./nowhere", r"no such model file or folder: \./nowhere"),
        ("/no/where", "no such model file or folder: /no/where"),
        ("~/no-such-folder-here", "no such model file or folder"),
        ("a/b/c", "no such model file or folder: a/b/c"),
        ("missing.gguf", "no such model file or folder: missing.gguf"),
        (
            "no-such-owner/no-such-model",
            "no usable model 'no-such-owner/no-such-model' .*; check the name, the network",
        ),
    ],
)
def test_what_is_not_there_is_named(name, why):
    with pytest.raises(ModelNotUsable, match=why) as caught:
        load_model(name, OFFLINE)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_says_so(tmp_path):
    with pytest.raises(ModelNotUsable, match=r"no config.json and no .gguf file") as caught:
        load_model(str(tmp_path))
    one_sentence(caught.value)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelNotUsable, match=r"has 2 .gguf files; name one"):
        load_model(str(tmp_path))


def test_a_file_of_another_kind_says_so(folder):
    with pytest.raises(ModelNotUsable, match=r"config.json is a file but no .gguf"):
        load_model(str(folder / "config.json"))


# --- damaged folders -------------------------------------------------------------------------------


def rewrite(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    # transformers fills these two with random numbers and only warns: wrong text without an error
    "weight missing": (rewrite(lambda w: w.pop(QUERY)), f"lacks 1 of the model's weights .first: {QUERY}"),
    "weight of another shape": (
        rewrite(lambda w: w.update({QUERY: w[QUERY][:5].clone()})),
        f"has in another shape 1 of the model's weights .first: {QUERY}",
    ),
    "weights cut off": (cut, "cannot load"),
    "weights no weights": (lambda f: (f / "model.safetensors").write_text("hello"), "cannot load"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no file named model.safetensors"),
    "no tokenizer": (lambda f: shutil.move(f / "tokenizer.json", f / "x"), "no usable tokenizer"),
    "broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{"), "no usable tokenizer"),
    "broken config": (lambda f: (f / "config.json").write_text("{"), "check its config.json"),
    "empty config": (lambda f: (f / "config.json").write_text("{}"), "check its config.json"),
    "unknown kind": (
        lambda f: (f / "config.json").write_text('{"model_type": "no"}'),
        "check its config.json",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_and_says_what_is_wrong(damage, folder):
    harm, why = DAMAGES[damage]
    harm(folder)
    with pytest.raises(ModelNotUsable, match=f"(?i){why}") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


# --- models of another kind ------------------------------------------------------------------------

OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "t5": (
        lambda: tf.T5Config(vocab_size=64, d_model=16, d_ff=16, num_layers=1, num_heads=2),
        "encoder-decoder",
    ),
    "clip": (tf.CLIPConfig, "not a causal language model"),
    "vit": (lambda: tf.ViTConfig(hidden_size=16, num_hidden_layers=1), "not a causal language model"),
    "bert": (lambda: tf.BertConfig(hidden_size=16, num_hidden_layers=1), "not a causal language model"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_that_generates_no_text_is_refused_before_its_weights_are_read(name, tmp_path, monkeypatch):
    make, why = OTHERS[name]
    make().save_pretrained(tmp_path)
    monkeypatch.setattr(f"{HERE}.AutoModelForCausalLM.from_pretrained", None)
    with pytest.raises(ModelNotUsable, match=f"{name}.*{why}|{why}") as caught:
        load_model(str(tmp_path))
    assert "choose" in one_sentence(caught.value)


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(tiny_model_folder, monkeypatch):
    monkeypatch.setattr(f"{HERE}.psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(f"{HERE}.AutoModelForCausalLM.from_pretrained", None)
    with pytest.raises(
        OutOfMemory, match=r"weights need 0\.0 GiB as torch.float32 and only 0\.0 GiB are free; choose"
    ):
        load_model(str(tiny_model_folder), LoadOptions(device="cpu"))


# --- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp8", "float64", "", None, 32])
def test_an_unknown_dtype_names_the_known_ones(dtype):
    with pytest.raises(InvalidRequest, match=r"no dtype .*; known: auto, fp32, bf16, fp16"):
        LoadOptions(dtype=dtype)


@pytest.mark.parametrize("device", ["gpu", "cuda:-1", "meta", "mps", "", None, 3])
def test_an_unknown_device_names_the_known_ones(device):
    with pytest.raises(InvalidRequest, match=r"no device .*; known: auto, cpu, cuda, cuda:N"):
        LoadOptions(device=device)


def test_a_gpu_that_is_not_there_says_how_many_are():
    beyond = torch.cuda.device_count() + 5
    with pytest.raises(
        InvalidRequest, match=rf"device 'cuda:{beyond}' is not there \(\d+ GPUs seen\); use cpu"
    ):
        LoadOptions(device=f"cuda:{beyond}")


@pytest.mark.parametrize("short", ["fp32", "bf16", "fp16"])
def test_short_names_of_dtypes(short):
    assert LoadOptions(dtype=short).torch_dtype() in (torch.float32, torch.bfloat16, torch.float16)


# --- GGUF ------------------------------------------------------------------------------------------


def gguf(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not a GGUF file"),
        (b"GGML" + bytes(100), "is not a GGUF file"),
        (b"GGUF", "cannot read"),
        (b"GGUF" + bytes([3, 0, 0, 0]) + bytes([1]) * 20, "cannot read"),
        (b"GGUF" + bytes([3, 0, 0, 0]) + bytes(16), "cannot read"),
    ],
)
def test_a_broken_gguf_is_refused_and_leaves_no_half_written_folder(content, why, tmp_path, own_cache):
    with pytest.raises(ModelNotUsable, match=f"{why}.*download it again") as caught:
        load_model(gguf(tmp_path / "broken.gguf", content))
    assert "\n" not in str(caught.value)
    assert not list((own_cache / "models").glob("*")) if (own_cache / "models").exists() else True


def test_a_gguf_cut_off_in_the_middle_is_refused(tmp_path, own_cache):
    whole = Path(default_model())
    assert whole.suffix == ".gguf", "the embedded model is installed by make venv"
    with whole.open("rb") as file:
        head = file.read(4 << 20)
    with pytest.raises(ModelNotUsable, match=r"cut.gguf .*; it may be damaged: download it again"):
        load_model(gguf(tmp_path / "cut.gguf", head))
    assert not list((own_cache / "models").glob("*"))


def test_an_interrupted_conversion_leaves_nothing_behind(tmp_path, own_cache, monkeypatch):
    def interrupted(path: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_model(gguf(tmp_path / "some.gguf", b"GGUF"))
    assert not list((own_cache / "models").iterdir())


def test_a_converted_file_is_used_again(tmp_path, own_cache, monkeypatch, tiny_model_folder):
    made: list[Path] = []

    def convert(path: Path, folder: Path) -> None:
        made.append(path)
        shutil.copytree(tiny_model_folder, folder, dirs_exist_ok=True)

    monkeypatch.setattr(loading, "_convert", convert)
    name = gguf(tmp_path / "some.gguf", b"GGUF and the rest")
    seen: list[str] = []
    for _ in range(2):
        load_model(name, progress=lambda what, done, total: seen.append(what))
    assert len(made) == 1
    assert seen == ["converting GGUF"] * 2 + ["loading"] * 4
    gguf(tmp_path / "some.gguf", b"GGUF and something else")
    load_model(str(tmp_path))  # a folder with one GGUF file; another content is another model
    assert len(made) == 2


def test_a_missing_gguf_package_names_the_extra(tmp_path, monkeypatch):
    def missing(*args: Any, **keywords: Any) -> Any:
        raise ImportError("gguf")

    monkeypatch.setattr(f"{HERE}.AutoModelForCausalLM.from_pretrained", missing)
    with pytest.raises(ModelNotUsable, match=r"needs the extra 'gguf'"):
        load_model(gguf(tmp_path / "some.gguf", b"GGUF"))


def test_a_gguf_that_lacks_a_weight_is_refused(tmp_path, own_cache, monkeypatch):
    """transformers would fill it with random numbers, and the conversion would keep them for good."""
    report = {"missing_keys": {"lm_head.weight"}, "mismatched_keys": set()}
    loaded = tiny.llama(), report
    monkeypatch.setattr(f"{HERE}.AutoModelForCausalLM.from_pretrained", lambda *args, **keywords: loaded)
    monkeypatch.setattr(f"{HERE}.AutoTokenizer.from_pretrained", lambda *args, **keywords: None)
    with pytest.raises(ModelNotUsable, match=r"some.gguf lacks 1 of the model's weights"):
        load_model(gguf(tmp_path / "some.gguf", b"GGUF"))
    assert not list((own_cache / "models").iterdir())


# --- folders of the user ---------------------------------------------------------------------------


def test_the_cache_folder_is_the_one_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("ECHODRAFT_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("ECHODRAFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "echodraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "echodraft"


def test_without_the_embedded_package_the_default_is_the_same_model_from_the_hub(monkeypatch):
    monkeypatch.setattr(f"{HERE}.importlib.util.find_spec", lambda name: None)
    assert default_model() == loading.DEFAULT_HUB_ID


def test_an_embedded_file_of_another_content_is_not_trusted(monkeypatch, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(f"{HERE}.importlib.util.find_spec", lambda name: spec)
    assert default_model() == loading.DEFAULT_HUB_ID
