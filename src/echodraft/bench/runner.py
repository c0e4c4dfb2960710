"""Runner: methods on prompts, interleaved, each answer a row that explains itself.

All methods of a prompt run before the next prompt, in an order that moves on by one from prompt to prompt,
so that a disturbance of the machine hits all of them alike. Every request is cold (a fresh drafter and
calibration). transformers' own methods run in a process with a model of its own (`peers`).

Files in the run's folder: `run.json` (what was run, with what, on what), `results.jsonl` (rows), and
`ids.jsonl` (the ids, so that a resumed run can still compare; answers may quote texts that must not be
passed on, so rows carry hashes only). Calling again with the same spec does what is missing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from echodraft.bench.files import Rows, write_json
from echodraft.bench.methods import HF_PLAIN, PLAIN, Method, parse_method
from echodraft.bench.near_ties import NearTieChecker, first_difference
from echodraft.bench.peer_process import PeerFailed, PeerProcess
from echodraft.bench.provenance import facts
from echodraft.bench.suite import Item, Suite, load_suite
from echodraft.engine import DraftOptions, Engine
from echodraft.errors import InvalidRequest
from echodraft.targets.huggingface.loading import LoadOptions, load_model

__all__ = ["BenchmarkSpec", "run_benchmark"]

SCHEMA = "echodraft.bench/1"
WARM_UP_TOKENS = 12
LOOP_TOKENS = 24  # a last half shorter than this is not called a loop

ProgressBar = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """What to run.

    suite:       folder of prompt sets (`suite`).
    model:       hub id, folder, GGUF file; None: the default model.
    methods:     names as in `methods`, with `plain` and `hf:plain` where texts and times are to be compared.
    sets:        sets of the suite; None: all.
    max_prompts: prompts per set, at most; None: all.
    out:         folder of the results.
    raw:         prompts as they stand, not in the chat template.
    budget, num_speculative_tokens, min_value: drafting of methods that do not say otherwise.
    """

    suite: Path
    out: Path
    methods: tuple[str, ...]
    model: str | None = None
    sets: tuple[str, ...] | None = None
    max_prompts: int | None = None
    max_new_tokens: int = 128
    threads: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    raw: bool = False
    budget: Literal["cost_model", "fixed"] = "cost_model"
    num_speculative_tokens: int = 64
    min_value: float = 0.0

    def __post_init__(self) -> None:
        if not self.methods:
            raise InvalidRequest(f"name at least one method, for example {PLAIN},auto,{HF_PLAIN}")
        if self.out.exists() and not self.out.is_dir():
            raise InvalidRequest(f"{self.out} is a file; name a folder for the results")
        names = [method.name for method in self.parsed()]
        for name in names:
            if names.count(name) > 1:
                raise InvalidRequest(f"two methods are called {name!r}; give one a label: NAME@label")
        for what, value in (("max_new_tokens", self.max_new_tokens), ("threads", self.threads)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidRequest(f"{what} must be a whole number of at least 1, got {value!r}")

    def parsed(self) -> list[Method]:
        """The methods.

        raises: InvalidRequest for one that there is not.
        """
        defaults = DraftOptions("none", {}, self.num_speculative_tokens, self.budget, self.min_value)
        return [parse_method(text, defaults) for text in self.methods]

    def as_dict(self) -> dict[str, Any]:
        """What makes two runs the same run: no folder but by its own name."""
        spec = dataclasses.asdict(self) | {"methods": list(self.methods)}
        del spec["out"]
        spec["suite"] = self.suite.name
        spec["model"] = None if self.model is None else _base_name(self.model)
        spec["sets"] = None if self.sets is None else list(self.sets)
        return spec


def run_benchmark(spec: BenchmarkSpec, progress: ProgressBar | None = None) -> Path:
    """Run what `spec` asks for and has no rows yet; the folder of the results.

    raises: InvalidRequest (also if the folder holds a run of another spec), ModelNotUsable, OutOfMemory,
            PeerFailed.
    """
    suite = load_suite(spec.suite, spec.sets, spec.max_prompts)
    _same_run(spec, suite)
    methods = spec.parsed()
    done = _done(spec.out)
    if all((method.name, item.id) in done for item in suite.items for method in methods):
        return spec.out  # nothing to load a model for
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    load = LoadOptions(dtype=spec.dtype, device=spec.device)
    model, tokenizer = load_model(spec.model, load, progress)
    # Without the progress bar: it would be drawn inside what is measured.
    engine = Engine(model, tokenizer, name=_base_name(spec.model or "default"))
    run = _Run(spec, suite, methods, engine)
    with run:
        run.warm_up()
        run.write_facts()
        total = len(suite.items)
        for index, item in enumerate(suite.items):
            if progress is not None:
                progress(f"{item.set} {item.id}", index, total)
            turn = index % len(methods)
            run.prompt(item, methods[turn:] + methods[:turn])
        if progress is not None:
            progress("done", total, total)
    return spec.out


@dataclass(slots=True)
class _Run:
    """A run under way: the engine, the peers' process if any method needs it, what is written already."""

    spec: BenchmarkSpec
    suite: Suite
    methods: list[Method]
    engine: Engine
    peers: PeerProcess | None = None
    rows: Rows = field(init=False)
    ids: Rows = field(init=False)
    checker: NearTieChecker = field(init=False)
    done: set[tuple[str, str]] = field(init=False)
    known: dict[tuple[str, str], list[int]] = field(init=False)  # (method, prompt) -> ids

    def __post_init__(self) -> None:
        self.rows = Rows(self.spec.out / "results.jsonl")
        self.ids = Rows(self.spec.out / "ids.jsonl")
        self.checker = NearTieChecker(self.engine.target.model)
        self.done = _done(self.spec.out)
        self.known = {(row["method"], row["prompt_id"]): row["ids"] for row in self.ids.read()}

    def __enter__(self) -> _Run:
        if any(method.peer for method in self.methods):
            model = self.engine.target.model
            self.peers = PeerProcess(
                str(model.config.name_or_path),
                str(model.dtype).removeprefix("torch."),
                str(self.engine.target.device),
                torch.get_num_threads(),
            )
        return self

    def __exit__(self, *error: object) -> None:
        if self.peers is not None:
            self.peers.close()

    def warm_up(self) -> None:
        """Pay for what only first requests pay; the peers have warmed up by their timing."""
        _ = self.engine.curve
        size = self.engine.target.info.vocabulary_size
        prompt = [7 * i % size for i in range(32)]
        for method in self.methods:
            if method.drafting is not None:
                self.engine.generate(ids=prompt, max_new_tokens=WARM_UP_TOKENS, drafting=method.drafting)

    def write_facts(self) -> None:
        """Write run.json; what an interrupted run said of itself is kept under `earlier`."""
        curve = self.engine.curve
        path = self.spec.out / "run.json"
        earlier: list[dict[str, Any]] = []
        if path.is_file():
            before = json.loads(path.read_text(encoding="utf-8"))
            kept = {key: before.get(key) for key in ("argv", *facts(), "latency", "peers")}
            earlier = [*before.get("earlier", []), kept]
        document = {
            "schema": SCHEMA,
            "argv": [_without_folders(argument) for argument in sys.argv],
            "spec": self.spec.as_dict(),
            **facts(),
            "model": {
                "name": self.engine.target.info.name,
                "dtype": str(self.engine.target.model.dtype).removeprefix("torch."),
                "device": self.engine.target.device.type,
            },
            "latency": {"rows": curve.rows, "seconds": curve.seconds, "context": curve.context},
            "peers": None if self.peers is None else self.peers.facts,
            "data": {"sha256": dict(self.suite.sha256), "prompts": len(self.suite.items)},
            "earlier": earlier,
        }
        write_json(path, document)

    def prompt(self, item: Item, methods: list[Method]) -> None:
        """Run the methods that have no row of this prompt yet, in this order."""
        todo = [method for method in methods if (method.name, item.id) not in self.done]
        if not todo:
            return
        waiting: list[tuple[Method, dict[str, Any]]] = []
        pending = {method.name for method in todo}
        prompt: list[int] = []
        for method in todo:
            row: dict[str, Any] = {"method": method.name, "set": item.set, "prompt_id": item.id}
            try:
                prompt = item.encode(self.engine.tokenizer, raw=self.spec.raw)
                answer = self._peer(method, prompt) if method.peer else self._own(method, prompt)
            except PeerFailed:
                raise  # none of its further prompts could run
            except Exception as error:  # this prompt's result is its error, by name
                row["error"] = f"{type(error).__name__}: {error}"
            else:
                if "ids" in answer:
                    self._remember(method, item, answer.pop("ids"))
                row |= answer
            waiting.append((method, row))
            pending.discard(method.name)
            waiting = self._write(waiting, pending, item, prompt)

    def _write(
        self, waiting: list[tuple[Method, dict[str, Any]]], pending: set[str], item: Item, prompt: list[int]
    ) -> list[tuple[Method, dict[str, Any]]]:
        """Write the rows whose references have run; those still waiting."""
        left = []
        for method, row in waiting:
            if {method.reference, HF_PLAIN} & pending:
                left.append((method, row))
                continue
            if "error" not in row:
                row |= self._compared(method, item, prompt)
            self.rows.append(row)
            self.done.add((method.name, item.id))
        return left

    def _compared(self, method: Method, item: Item, prompt: list[int]) -> dict[str, Any]:
        own = self.known[method.name, item.id]
        reference = self.known.get((method.reference, item.id))
        row: dict[str, Any] = {"identical": None, "first_difference": None, "difference": None}
        if reference is not None:
            row["identical"] = own == reference
            row["first_difference"] = first_difference(reference, own)
            difference = self.checker.check(prompt, reference, own)
            row["difference"] = None if difference is None else difference.as_dict()
        if method.peer is None:
            other = self.known.get((HF_PLAIN, item.id))
            row["identical_to_hf"] = None if other is None else own == other
        return row

    def _remember(self, method: Method, item: Item, ids: list[int]) -> None:
        self.known[method.name, item.id] = ids
        self.ids.append({"method": method.name, "prompt_id": item.id, "ids": ids})

    def _own(self, method: Method, prompt: list[int]) -> dict[str, Any]:
        assert method.drafting is not None
        result = self.engine.generate(
            ids=prompt, max_new_tokens=self.spec.max_new_tokens, drafting=method.drafting
        )
        statistics = result.statistics
        return _row(prompt, result.token_ids, 1, statistics.steps) | {
            "ids": result.token_ids,
            "seconds": result.seconds,
            "prefill_seconds": result.prefill_seconds,
            "nodes": statistics.nodes,
            "finish_reason": result.finish_reason,
            "draft_seconds": statistics.seconds["draft"],
            "verify_seconds": statistics.seconds["verify"],
            "commit_seconds": statistics.seconds["commit"],
            "accepted_by_source": dict(statistics.accepted_by_source),
        }

    def _peer(self, method: Method, prompt: list[int]) -> dict[str, Any]:
        assert method.peer is not None
        assert self.peers is not None
        info = self.engine.target.info
        limit = min(self.spec.max_new_tokens, info.context_limit - len(prompt))
        answer = self.peers.generate(method.peer, prompt, limit, sorted(info.end_tokens))
        if "error" in answer:
            return answer
        ids = answer["ids"]
        ended = bool(ids) and ids[-1] in info.end_tokens
        return (
            answer
            | _row(prompt, ids, answer["prefill_tokens"], answer["steps"])
            | {"finish_reason": "stop" if ended else "length"}
        )


def _row(prompt: list[int], ids: list[int], prefill_tokens: int, steps: int) -> dict[str, Any]:
    """What is read off the ids. MAT counts the tokens that decoding forwards decided, not the prefill's."""
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "prefill_tokens": prefill_tokens,
        "steps": steps,
        "mat": (len(ids) - prefill_tokens) / steps if steps else None,
        "ids_sha256": hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
        "loop": is_loop(ids),
    }


def is_loop(ids: list[int]) -> bool:
    """Whether the last half is one run of ids again and again (at least three times)."""
    half = ids[len(ids) // 2 :]
    if len(half) < LOOP_TOKENS:
        return False
    return any(half[period:] == half[:-period] for period in range(1, len(half) // 3 + 1))


def _done(out: Path) -> set[tuple[str, str]]:
    return {(row["method"], row["prompt_id"]) for row in Rows(out / "results.jsonl").read()}


def _same_run(spec: BenchmarkSpec, suite: Suite) -> None:
    """Refuse a folder that holds rows of another spec or of other data."""
    path = spec.out / "run.json"
    if not path.is_file():
        if (spec.out / "results.jsonl").is_file():
            raise InvalidRequest(f"{spec.out} has results but no run.json; choose another folder")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        spec_before, data_before = dict(before["spec"]), before["data"]["sha256"]
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest(f"{path} is not readable as that of a run; choose another folder") from None
    now: Mapping[str, Any] = json.loads(json.dumps(spec.as_dict()))
    changed = [key for key in {**now, **spec_before} if now.get(key) != spec_before.get(key)]
    if changed:
        parts = [f"{key}: {spec_before.get(key)!r} there, {now.get(key)!r} now" for key in changed]
        raise InvalidRequest(f"{spec.out} holds another run ({'; '.join(parts)}); choose another folder")
    if data_before != dict(suite.sha256):
        raise InvalidRequest(f"{spec.out} holds a run on other prompts (files differ); choose another folder")


def _base_name(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2]


def _without_folders(argument: str) -> str:
    """An argument that is a path, by its last part: paths of this machine are nobody else's business."""
    flag, equals, value = argument.rpartition("=") if argument.startswith("--") else ("", "", argument)
    return flag + equals + (_base_name(value) if "/" in value else value)
