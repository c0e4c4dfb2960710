"""Peer process: the other end of `peers`, held for the length of a run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from types import TracebackType
from typing import Any

from echodraft.errors import EchodraftError

__all__ = ["PeerFailed", "PeerProcess"]


class PeerFailed(EchodraftError):
    """The process of the peers could not load the model, or is gone."""


class PeerProcess:
    """A process with a model of its own; use it in a `with` block, which ends it.

    facts: what it said of itself when the model was loaded (attention chosen, timings, threads).
    """

    def __init__(self, model: str, dtype: str, device: str, threads: int | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "echodraft.bench.peers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        try:
            answer = self._ask(op="load", name=model, dtype=dtype, device=device, threads=threads)
            if "error" in answer:
                raise PeerFailed(f"transformers alone cannot load the model: {answer['error']}")
        except BaseException:
            self.close()
            raise
        self.facts: dict[str, Any] = answer

    def generate(
        self, method: str, ids: list[int], max_new_tokens: int, end_tokens: list[int]
    ) -> dict[str, Any]:
        """What `peers.generate` gives, or {"error": ...}.

        raises: PeerFailed if the process is gone.
        """
        return self._ask(
            op="generate", method=method, ids=ids, max_new_tokens=max_new_tokens, end_tokens=end_tokens
        )

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(
                f"the process of the transformers baselines ended (exit code {self._process.poll()}); "
                "is there memory for a second copy of the model?"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer
