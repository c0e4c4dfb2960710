"""Fixtures for all tests: a cache folder of one's own, one thread for tiny models, a saved tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from echodraft.policies.cost_model import LatencyCurve
from tests import tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ECHODRAFT_CACHE in a folder of this test: nothing of the user's is read or written."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ECHODRAFT_CACHE", str(folder))
    return folder


@pytest.fixture
def embedded_cache(
    own_cache: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """One cache for all tests that use the embedded model: it is converted once, not by each of them."""
    folder = tmp_path_factory.getbasetemp() / "embedded-cache"
    monkeypatch.setenv("ECHODRAFT_CACHE", str(folder))
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: for tiny models the fastest, and it leaves the other core alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte; every text round-trips. Has a chat template."""
    return tiny.byte_tokenizer()


@pytest.fixture(scope="session")
def flat_curve() -> LatencyCurve:
    """Rows are nearly free: the cost model verifies whatever was drafted."""
    return LatencyCurve((1, 64), (1.0, 1.01))


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with byte tokenizer and chat template, saved as transformers does."""
    model = tiny.llama(max_position_embeddings=1024)
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny-llama", model)
