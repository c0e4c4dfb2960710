"""Fixtures for the command line: run it in this process, or in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from echodraft.cli.main import main
from tests import tiny

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Run:
    """`run("generate", "x", stdin=b"...")`: exit code and what was written."""

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """`start("generate", "x")`: the command in a process of its own, its streams as pipes."""

    def call(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "echodraft", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            **options,
        )

    return call


@pytest.fixture(scope="session")
def long_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context does not end before a test has interrupted it."""
    model = tiny.llama(max_position_embeddings=1_000_000)
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny-long", model)
