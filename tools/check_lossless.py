"""Is drafted text the same text? Own plain against every drafter and against `generate`, on a real model.

    check_lossless.py --model NAME --models FOLDER --data FOLDER --prompts N --tokens T
                      [--drafters a,b] [--max-seconds S] [--out results/lossless-NAME.json]

Ids are compared by the rule of docs/architecture.md: equal, or at the first difference a near tie proven
in fp64; more than one near tie in 20,000 tokens is a fault. Forwards are counted by a hook on the model,
and the count must show that tokens were accepted: a check in which nothing was drafted proves nothing.

Resumable: every finished run of a prompt is a line in OUT.rows (not committed); `--max-seconds` ends a
slice, calling again goes on. The exit code is 0 when all is compared and lossless, 3 when runs are
missing, 1 for a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from echodraft.bench.files import Rows, write_json
from echodraft.bench.near_ties import NearTieChecker
from echodraft.bench.provenance import facts
from echodraft.bench.suite import Item, load_suite
from echodraft.drafters.registry import DRAFTERS
from echodraft.engine import DraftOptions, Engine
from echodraft.targets.huggingface.loading import LoadOptions, load_model

__all__ = ["BUDGETS", "Check", "compare", "run_rows", "summary"]

SCHEMA = "echodraft.lossless/1"
# Most drafted nodes by prompt, in turn: kernels change with the number of rows, so all are exercised.
BUDGETS = (3, 7, 14, 7, 3, 30)
PRICED = "auto with the cost model"  # the default settings, which may choose to draft nothing
PRICED_EVERY = 4  # prompts; its time is that of the machine, not of what is to be shown
TOKENS_PER_NEAR_TIE = 20_000
LONG_EVERY = 8  # one prompt in so many is long: prefill in chunks, sliding windows that have moved
SHORT_PROMPT, LONG_PROMPT = 320, 1100  # tokens at most; prefill would take most of the time otherwise

BUILT_IN = [  # where there is no data folder
    "Correct the spelling and repeat the text: Teh cat sat onn the mat and the cat sat on teh mat again.",
    "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n",
    "Write the numbers from one to thirty as words, one a line.",
    '{"name": "Ada", "born": 1815}\n{"name": "Alan", "born": 1912}\n{"name": "Grace", "born": 1906}\n',
    "The quick brown fox jumps over the lazy dog. " * 60,
]


@dataclass(frozen=True, slots=True)
class Check:
    """What is compared."""

    model: str
    prompts: int
    tokens: int
    drafters: tuple[str, ...] = tuple(name for name in DRAFTERS if name != "none")
    raw: bool = False

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of all runs of a prompt, the reference first."""
        priced = (PRICED,) if "auto" in self.drafters else ()
        return ("plain", "generate", *self.drafters, *priced)


@dataclass(slots=True)
class Forwards:
    """Forwards of a model as a hook sees them: (rows, first position) of each."""

    calls: list[tuple[int, int]] = field(default_factory=list)

    def after(self, prompt: int) -> list[int]:
        """Rows of every forward behind a prompt of this length."""
        return [rows for rows, first in self.calls if first >= prompt]


@contextmanager
def counted(model: PreTrainedModel) -> Iterator[Forwards]:
    """Count the model's forwards inside the block, from outside of whatever runs it."""
    forwards, cached = Forwards(), 0

    def hook(_module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal cached
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        positions = kwargs.get("position_ids")
        first = cached if positions is None else int(positions.min())
        forwards.calls.append((int(ids.shape[1]), first))
        cached = first + int(ids.shape[1])

    handle = model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield forwards
    finally:
        handle.remove()


def run_rows(check: Check, engine: Engine, items: SequenceOf[Item], path: Path, until: float) -> bool:
    """Do the runs that `path` has no row of yet, prompt by prompt; false if time was up before the end."""
    rows = Rows(path)
    done = {(row["prompt_id"], row["run"]) for row in rows.read()}
    commit = facts()["commit"]  # slices may be of different ones
    for index, item in enumerate(items):
        ids = item.encode(engine.tokenizer, raw=check.raw)
        for run in check.runs:
            if (item.id, run) in done or (run == PRICED and index % PRICED_EVERY):
                continue
            if time.monotonic() > until:
                return False
            row = _run(check, engine, ids, run, BUDGETS[index % len(BUDGETS)])
            rows.append(
                {
                    "prompt_id": item.id,
                    "set": item.set,
                    "run": run,
                    "prompt_tokens": len(ids),
                    **row,
                    "commit": commit,
                }
            )
    return True


def _run(check: Check, engine: Engine, ids: list[int], run: str, budget: int) -> dict[str, Any]:
    model = engine.target.model
    begin = time.perf_counter()
    with counted(model) as forwards:
        if run == "generate":
            output, own = _generate(model, ids, check.tokens), {}
        else:
            result = engine.generate(ids=ids, max_new_tokens=check.tokens, drafting=_drafting(run, budget))
            output = result.token_ids
            own = {
                "steps": result.statistics.steps,
                "nodes": result.statistics.nodes,
                "accepted": result.statistics.accepted_by_source.total(),
            }
    seen = forwards.after(len(ids))
    return {
        "ids": output,
        "forwards": len(seen),
        "drafted_rows": sum(seen) - len(seen),
        **own,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def _drafting(run: str, budget: int) -> DraftOptions:
    if run == "plain":
        return DraftOptions(drafter="none")
    if run == PRICED:
        return DraftOptions(drafter="auto")
    # Fixed, so that drafts are verified whatever this machine thinks of their price; the least likely ones
    # are left out because a check of hundreds of prompts has to end.
    return DraftOptions(drafter=run, budget="fixed", num_speculative_tokens=budget, min_value=0.1)


@torch.no_grad()
def _generate(model: PreTrainedModel, ids: list[int], tokens: int) -> list[int]:
    prompt = torch.tensor([ids], device=model.device)
    end = model.generation_config.eos_token_id if model.generation_config is not None else None
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, repetition_penalty=1.0, eos_token_id=end, pad_token_id=0
    )
    generate: Any = model.generate
    output = generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    new: list[int] = output[0, len(ids) :].tolist()
    return new


def compare(
    rows: list[dict[str, Any]],
    prompts: Mapping[str, list[int]],
    checker: NearTieChecker,
) -> dict[str, dict[str, Any]]:
    """Every run against `plain` of the same prompt: counts, and the differences one by one."""
    by_run: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], {})[row["prompt_id"]] = row
    plain = by_run.get("plain", {})
    result = {}
    for run, of_run in by_run.items():
        counts = {"prompts": 0, "tokens": 0, "identical": 0, "forwards": 0, "drafted_rows": 0}
        counts |= {"saved_forwards": 0, "miscounted": 0}
        differences = []
        for prompt_id, row in of_run.items():
            if prompt_id not in plain or prompt_id not in prompts:
                continue
            difference = checker.check(prompts[prompt_id], plain[prompt_id]["ids"], row["ids"])
            counts["prompts"] += 1
            # Behind a difference there is nothing to compare.
            counts["tokens"] += len(row["ids"]) if difference is None else difference.position + 1
            counts["identical"] += difference is None
            counts["forwards"] += row["forwards"]
            counts["drafted_rows"] += row["drafted_rows"]
            counts["saved_forwards"] += max(len(row["ids"]) - 1, 0) - row["forwards"]
            if "steps" in row:  # our statistics against the hook
                honest = (row["steps"], row["nodes"]) == (row["forwards"], row["drafted_rows"])
                counts["miscounted"] += not honest
            if difference is not None:
                differences.append({"prompt_id": prompt_id, **difference.as_dict()})
        result[run] = {
            **counts,
            "accepted": sum(row.get("accepted", 0) for row in of_run.values()),
            "near_ties": [d for d in differences if d["verdict"] == "near tie"],
            "different": [d for d in differences if d["verdict"] == "different"],
        }
    return result


def summary(check: Check, compared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document: what was checked, what came out, and what of it is a fault."""
    faults = []
    for run, counts in compared.items():
        if counts["different"]:
            faults.append(f"{run}: {len(counts['different'])} outputs differ")
        # One near tie may fall into any sample, however small.
        if len(counts["near_ties"]) > max(1, counts["tokens"] // TOKENS_PER_NEAR_TIE):
            faults.append(f"{run}: {len(counts['near_ties'])} near ties in {counts['tokens']} tokens")
        if counts["miscounted"]:
            faults.append(f"{run}: the hook saw other counts in {counts['miscounted']} prompts")
        if run in check.drafters and not counts["saved_forwards"] > 0:
            faults.append(f"{run}: no draft was accepted, so nothing was checked")
    wanted = dict.fromkeys(check.runs, check.prompts)
    if PRICED in wanted:
        wanted[PRICED] = len(range(0, check.prompts, PRICED_EVERY))
    missing = [run for run in wanted if compared.get(run, {}).get("prompts", 0) < wanted[run]]
    return {
        "schema": SCHEMA,
        **facts(),
        "model": check.model,
        "dtype": "float32",
        "prompts": check.prompts,
        "tokens": check.tokens,
        "raw": check.raw,
        "budgets": BUDGETS,
        "runs": dict(compared),
        "missing": missing,
        "faults": faults,
    }


def choose(engine: Engine, data: Path | None, check: Check) -> list[Item]:
    """Prompts from all sets in turn, mostly short ones; built-in ones without data."""
    if data is None:
        message = [{"role": "user", "content": text} for text in BUILT_IN]
        return [Item(f"built-in-{i}", "built-in", (one,)) for i, one in enumerate(message)][: check.prompts]
    groups: dict[str, list[Item]] = {}
    for item in load_suite(data).items:
        groups.setdefault(item.set, []).append(item)
    turns = [
        group[turn]
        for turn in range(max(map(len, groups.values())))
        for group in groups.values()
        if turn < len(group)
    ]
    chosen: list[Item] = []
    short, long = iter(turns), iter(turns)
    while len(chosen) < check.prompts:
        wants_long = len(chosen) % LONG_EVERY == 1
        least, most = (513, LONG_PROMPT) if wants_long else (1, SHORT_PROMPT)
        for item in long if wants_long else short:
            if least <= len(item.encode(engine.tokenizer, raw=check.raw)) <= most:
                chosen.append(item)
                break
        else:
            return chosen
    return chosen


def check_model(
    check: Check, folder: Path, data: Path | None, out: Path, max_seconds: float | None
) -> dict[str, Any]:
    """Run what is missing, compare, write `out`; the document."""
    until = time.monotonic() + max_seconds if max_seconds is not None else float("inf")
    model, tokenizer = load_model(str(folder), LoadOptions(dtype="float32", device="cpu"))
    engine = Engine(model, tokenizer)
    check = replace(check, raw=check.raw or not getattr(tokenizer, "chat_template", None))
    items = choose(engine, data, check)
    check = replace(check, prompts=len(items))
    rows = out.with_suffix(".rows.jsonl")
    _ = engine.curve  # measured now: its forwards must not be counted as those of a prompt
    run_rows(check, engine, items, rows, until)
    prompts = {item.id: item.encode(tokenizer, raw=check.raw) for item in items}
    read = Rows(rows).read()
    document = summary(check, compare(read, prompts, NearTieChecker(model)))
    document["commits_of_rows"] = sorted({str(row["commit"]) for row in read})
    lengths = sorted(map(len, prompts.values()))
    document["prompt_tokens"] = {"median": lengths[len(lengths) // 2], "most": lengths[-1]}
    document["prompts_past_512"] = sum(length > 512 for length in lengths)
    document["data"] = "built-in" if data is None else sorted({item.set for item in items})
    write_json(out, document)
    return document


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, say what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="name of the model's folder below --models")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--drafters", help="comma-separated; default: all")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-seconds", type=float)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    check = Check(given.model, given.prompts, given.tokens, raw=given.raw)
    if given.drafters:
        check = replace(check, drafters=tuple(given.drafters.split(",")))
    out = given.out or Path("results") / f"lossless-{given.model}.json"
    document = check_model(check, given.models / given.model, given.data, out, given.max_seconds)
    for run, counts in document["runs"].items():
        print(
            f"{run}: {counts['identical']}/{counts['prompts']} identical, "
            f"{len(counts['near_ties'])} near ties, {len(counts['different'])} different; "
            f"{counts['tokens']} tokens, {counts['forwards']} forwards, {counts['accepted']} accepted"
        )
    for fault in document["faults"]:
        print(f"fault: {fault}", file=sys.stderr)
    if document["missing"]:
        print(f"missing runs: {json.dumps(document['missing'])}; call again to go on", file=sys.stderr)
        return 3
    return 1 if document["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
