"""Fit what ships in `drafters/priors.json`: acceptance rates of all bins and weights of the copy model.

    python tools/fit_priors.py --transcripts FOLDER --models FOLDER --recordings FOLDER

TRANSCRIPTS holds MODEL.jsonl files of greedy answers; MODELS a folder of weights for each; RECORDINGS
keeps one teacher-forced pass of every transcript (made where it is missing: minutes a model, 1 GB).
Only prompts of the tune half are read. In turn, drafts are replayed on the recordings with what is known
so far, and the weights (a conditional logit of which place went on) and rates (hits over trials, bins
with few trials drawn towards the wider bin) are fitted to what happened. Takes a few minutes; the result
is the same on every run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from echodraft.bench.replay import (
    Transcript,
    in_tune_half,
    load_recordings,
    load_transcripts,
    replay,
    save_recording,
)
from echodraft.decoding.calibration import UNKNOWN, AcceptanceTable
from echodraft.decoding.interfaces import Rows, top_ids
from echodraft.decoding.sequence import Sequence as TokenSequence
from echodraft.decoding.sequence import Verification
from echodraft.decoding.tree import Bin, DraftTree
from echodraft.decoding.tree import Path as DraftPath
from echodraft.drafters.auto import AutoDrafter
from echodraft.drafters.copy_model import FEATURES, GROUPS, SIZES, STARTS, CopyModel, Places
from echodraft.drafters.pointer import CopyPointer
from echodraft.drafters.priors import key_of
from echodraft.drafters.registry import DRAFTERS, build
from echodraft.drafters.srsd import SRSDDrafter, nominal_rate

DEPTHS = (0.5, 0.62, 0.75, 0.83)  # layers recorded, as shares of the depth
ROUNDS = 2
COPYING = ("auto", "srsd")  # drafters with a copy model
PULL = 8.0  # trials that the wider bin's rate counts as
RIDGE = 1e-3
START: dict[str, Sequence[float]] = {  # before anything is known: trust long matches and likeness
    "match": np.linspace(-4.0, 1.0, SIZES["match"]).tolist(),
    "anchored_similarity": [3.0],
    "other": [-5.0],
    "other_similarity": [3.0],
    "recycled": [1.0] * SIZES["recycled"],
    "new": np.linspace(-1.5, -4.0, SIZES["new"]).tolist(),
}

Counts = dict[Bin, list[float]]
# Features of every guess at a step, which of them were right, and what the step weighs in the fit.
Step = tuple[NDArray[np.float32], NDArray[np.bool_], float]


class CountingTable(AcceptanceTable):
    """An acceptance table that also counts trials for the fit, in a bin and all wider ones."""

    def __init__(self, priors: Mapping[Bin, float], counts: Counts) -> None:
        super().__init__(priors)
        self._fit = counts

    def _score(self, path: DraftPath, start: int, emitted: Sequence[int]) -> bool:
        for key, drafted, token in zip(path.bins[start:], path.tokens[start:], emitted, strict=False):
            for end in range(1, len(key or ()) + 1):
                counts = self._fit.setdefault((key or ())[:end], [0.0, 0.0])
                counts[0] += drafted == token
                counts[1] += 1.0
            if drafted != token:
                break
        return super()._score(path, start, emitted)


class CountingModel(CopyModel):
    """A copy model that remembers its last features."""

    seen: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    def features(self, places: Places, pointer: CopyPointer, recycled: Sequence[int]) -> NDArray[np.float32]:
        """As the copy model's."""
        rows = super().features(places, pointer, recycled)
        self.seen = rows, np.concatenate([places.tokens, np.array(recycled, dtype=np.int64)])
        return rows


def watched(drafter: SRSDDrafter | AutoDrafter, weights: Any, steps: list[Step]) -> None:
    """Make `drafter` note what it knew and what came at every step."""
    inner = drafter if isinstance(drafter, SRSDDrafter) else drafter._srsd
    model = CountingModel(weights)
    inner._model = model
    observe = drafter.observe

    def observed(sequence: TokenSequence, tree: DraftTree, rows: Rows, result: Verification) -> None:
        if model.seen is not None:
            steps.append((model.seen[0], model.seen[1] == result.tokens[0], 1.0))
            model.seen = None
        observe(sequence, tree, rows, result)

    vars(drafter)["observe"] = observed


def play(
    name: str, recordings: Iterable[Transcript], priors: Mapping[Bin, float], weights: Any
) -> tuple[list[Step], Counts]:
    """Replay drafter `name`; what it saw, and trials of its bins."""
    steps: list[Step] = []
    counts: Counts = {}

    def make(context: Any) -> Any:
        drafter = build(name, context)
        if isinstance(drafter, SRSDDrafter | AutoDrafter):
            watched(drafter, weights[name], steps)
        return drafter

    for recording in recordings:
        before = len(steps)
        replay(recording, make, table=CountingTable(priors, counts), weights=weights)
        # Every transcript weighs the same: long copies take few steps and would not be heard.
        share = 1.0 / max(len(steps) - before, 1)
        steps[before:] = [(rows, right, share) for rows, right, _ in steps[before:]]
    return steps, counts


def fit_weights(steps: Sequence[Step]) -> dict[str, list[float]]:
    """Conditional logit: at every step one of the guesses comes next, or none of them."""
    features = torch.from_numpy(np.concatenate([rows for rows, _, _ in steps]))
    right = torch.from_numpy(np.concatenate([hits for _, hits, _ in steps])).float()
    step = torch.repeat_interleave(torch.tensor([len(hits) for _, hits, _ in steps]))
    share = torch.tensor([share for _, _, share in steps])
    share /= share.sum()
    count = len(steps)
    found = torch.zeros(count).index_add_(0, step, right) > 0
    weights = torch.zeros(FEATURES, requires_grad=True)
    with torch.no_grad():
        weights.copy_(torch.from_numpy(CopyModel(START).weights))
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        parts = (features @ weights).clamp(max=30.0).exp()
        whole = 1.0 + torch.zeros(count).index_add_(0, step, parts)
        hits = torch.zeros(count).index_add_(0, step, parts * right)
        likelihood = torch.where(found, hits, 1.0) / whole
        value = RIDGE * (weights * weights).mean() - (share * likelihood.clamp_min(1e-12).log()).sum()
        value.backward()
        return value

    final = float(optimizer.step(loss).detach())
    print(f"  {count} steps, {len(features)} guesses, {final:.4f} nats a step at the start", flush=True)
    fitted = weights.detach().numpy().round(3)
    return {name: fitted[STARTS[name] : STARTS[name] + SIZES[name]].tolist() for name in GROUPS}


def fit_rates(counts: Counts) -> dict[Bin, float]:
    """Hits over trials, each bin drawn towards the next wider one, or to the probability it stands for."""
    rates: dict[Bin, float] = {}
    for key in sorted(counts, key=len):
        hits, trials = counts[key]
        wider = rates.get(key[:-1], UNKNOWN)
        if key[0] == "first" and len(key) == 2:
            wider = nominal_rate(("first", int(str(key[1]))))
        rates[key] = (hits + PULL * wider) / (trials + PULL)
    return rates


def fit(
    recordings: Sequence[Transcript], names: Iterable[str] = tuple(DRAFTERS)
) -> tuple[dict[Bin, float], dict[str, Any]]:
    """Rates of all bins and weights by drafter, each from replays of its own."""
    every: Counts = {}
    weights: dict[str, Any] = dict.fromkeys(COPYING, START)
    for name in names:
        print(name, flush=True)
        rates: dict[Bin, float] = {}
        counts: Counts = {}
        for _ in range(ROUNDS):
            if name in COPYING:
                steps, _ = play(name, recordings, rates, weights)
                weights[name] = fit_weights(steps)
            _, counts = play(name, recordings, rates, weights)
            rates = fit_rates(counts)
        for key, (hits, trials) in counts.items():
            total = every.setdefault(key, [0.0, 0.0])
            total[0] += hits
            total[1] += trials
    return fit_rates(every), weights


def record(model_folder: Path, transcripts: Iterable[Transcript], out: Path) -> None:
    """One teacher-forced fp32 pass of every transcript, kept under `out`."""
    from transformers import AutoModelForCausalLM

    out.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    blocks = model.model.layers
    wanted = sorted({round(depth * len(blocks)) - 1 for depth in DEPTHS})
    for number, transcript in enumerate(transcripts):
        ids = torch.tensor([*transcript.prompt_ids, *transcript.output_ids])
        with torch.inference_mode():
            passed = model.model(ids[None], output_hidden_states=True)
            best = [top_ids(model.lm_head(part), 8) for part in passed.last_hidden_state[0].split(256)]
        # hidden_states[0] is the embedding, so block b stands at b + 1 (the last one after the norm)
        states = {block: passed.hidden_states[block + 1][0].numpy() for block in wanted}
        whole = replace(
            transcript, num_layers=len(blocks), states=states, successors=torch.cat(best).int().numpy()
        )
        save_recording(out / f"{number:03d}.npz", whole)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="fit drafters/priors.json")
    parser.add_argument("--transcripts", type=Path, required=True, help="folder of MODEL.jsonl")
    parser.add_argument("--models", type=Path, help="folder of MODEL folders, needed where no recording is")
    parser.add_argument("--recordings", type=Path, required=True, help="folder that keeps the recordings")
    parser.add_argument("--out", type=Path, default=Path("src/echodraft/drafters/priors.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    recordings: list[Transcript] = []
    names = []
    for file in sorted(options.transcripts.glob("*.jsonl")):
        folder = options.recordings / file.stem
        if not any(folder.glob("*.npz")):
            record(options.models / file.stem, load_transcripts(file), folder)
        names.append(file.stem)
        recordings += [one for one in load_recordings(folder) if in_tune_half(one.prompt_id)]
    rates, weights = fit(recordings)
    document = {
        "header": {
            "schema": "echodraft.priors/1",
            "made_by": "tools/fit_priors.py",
            "date": date.today().isoformat(),
            "source": "greedy transcripts of " + ", ".join(names),
            "half": "tune: the last hex digit of the SHA-256 of the prompt id is even",
            "transcripts": len(recordings),
            "tokens": sum(len(one.output_ids) for one in recordings),
        },
        "weights": weights,
        "rates": {key_of(key): round(rate, 4) for key, rate in sorted(rates.items(), key=str)},
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
