"""Replay drafters on recorded transcripts and keep the figures: MAT over mean nodes, by method.

    python tools/replay_figures.py --recordings FOLDER --out results/replay.json

RECORDINGS is what `tools/fit_priors.py` keeps. Every method runs at several values below which no node
is verified (at most 64 nodes), so that methods can be compared at equal mean nodes. Prompts of the tune
half and of the report half are told apart; `docs/methods/` quotes the report half. Answers are cut to
128 tokens where the sweep is, and whole at
fewer points. A layer that was not recorded is replaced by the nearest one (rows list those recorded).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from echodraft.bench.provenance import facts
from echodraft.bench.replay import EDIT, Tally, Transcript, in_tune_half, load_recordings, replay
from echodraft.decoding.calibration import AcceptanceTable
from echodraft.drafters.priors import load_priors
from echodraft.drafters.registry import build, configure
from echodraft.policies.cost_model import FixedBudget

MIN_VALUES = (0.0, 0.02, 0.05, 0.1, 0.2)
WHOLE_VALUES = (0.0, 0.02, 0.1)  # beside 0.05, for which all sets are replayed
MAIN: dict[str, tuple[str, dict[str, object]]] = {
    "auto": ("auto", {}),
    "srsd": ("srsd", {}),
    "suffix_automaton": ("suffix_automaton", {}),
    "suffix_automaton 4+4m": ("suffix_automaton", {"base_length": 4, "per_match": 4}),
    "token_recycling": ("token_recycling", {}),
    "prompt_lookup": ("prompt_lookup", {}),
}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "srsd, random states": ("srsd", {}),
    "srsd, layer 0.5": ("srsd", {"layer_depth": 0.5}),
    "srsd, layer 0.62": ("srsd", {"layer_depth": 0.62}),
    "srsd, no substitutions": ("srsd", {"substitutions": 0}),
    "srsd, one branch": ("srsd", {"branches": 1}),
    "srsd, length 16": ("srsd", {"max_length": 16}),
    "auto, 0 seeds": ("auto", {"token_recycling.prompt_seeds": 0}),
    "auto, 64 seeds": ("auto", {"token_recycling.prompt_seeds": 64}),
    "auto, 192 seeds": ("auto", {"token_recycling.prompt_seeds": 192}),
    "auto, all seeds": ("auto", {"token_recycling.prompt_seeds": 4096}),
}


def randomized(transcript: Transcript) -> Transcript:
    """The transcript with random vectors for states."""
    generator = np.random.default_rng(0)
    states = {
        block: generator.standard_normal(rows.shape, dtype=np.float32)
        for block, rows in transcript.states.items()
    }
    return replace(transcript, states=states)


def measure(
    items: Iterable[Transcript], name: str, options: Mapping[str, object], min_value: float, limit: int | None
) -> dict[str, Any]:
    """Figures of one method at one point."""
    config, tally = configure(name, options), Tally()
    priors = load_priors()
    for item in items:
        statistics = replay(
            item,
            partial(_make, name, config),
            table=AcceptanceTable(priors),
            budget=partial(_budget, min_value),
            max_new_tokens=limit,
        )
        tally.add(item.set, statistics)
    return {
        "edit_geometric": round(tally.geometric(EDIT), 3),
        "edit_nodes": round(tally.nodes(EDIT), 2),
        "edit": round(tally.mat(EDIT), 3),
        "all": round(tally.mat(), 3),
        "nodes": round(tally.nodes(), 2),
        "milliseconds": round(tally.milliseconds(), 2),
        "sets": {name: round(tally.mat([name]), 2) for name in sorted(tally.sets)},
    }


def _make(name: str, config: Any, context: Any) -> Any:
    return build(name, context, config)


def _budget(min_value: float, table: AcceptanceTable) -> FixedBudget:
    return FixedBudget(table, 64, min_value)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="replay drafters on recorded transcripts")
    parser.add_argument("--recordings", type=Path, required=True, help="folder of MODEL folders")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--only", help="one method of MAIN: its points with answers of 128 tokens")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for folder in sorted(path for path in options.recordings.iterdir() if path.is_dir()):
        recordings = load_recordings(folder)
        for half in ("report", "tune"):
            items = [one for one in recordings if in_tune_half(one.prompt_id) == (half == "tune")]
            edit = [one for one in items if one.set in EDIT]
            runs: list[tuple[str, list[Transcript], int | None, float]]
            runs = [(key, edit, 128, value) for key in MAIN for value in MIN_VALUES]
            if half == "report":
                runs += [(key, items, None, 0.05) for key in MAIN]
                runs += [(key, edit, None, value) for key in list(MAIN)[:3] for value in WHOLE_VALUES]
                runs += [(key, edit, 128, value) for key in VARIANTS for value in MIN_VALUES[1:4]]
            if options.only:
                runs = [(options.only, edit, 128, value) for value in MIN_VALUES]
            for key, chosen, limit, min_value in runs:
                name, settings = (MAIN | VARIANTS)[key]
                if "random" in key:
                    chosen = [randomized(one) for one in chosen]
                row = {"model": folder.name, "half": half, "method": key, "max_new_tokens": limit}
                row |= {"min_value": min_value} | measure(chosen, name, settings, min_value, limit)
                row["blocks_recorded"] = sorted(recordings[0].states)
                rows.append(row)
                print(*(row[k] for k in list(row)[:9]), flush=True)
    document = {"schema": "echodraft.replay/1", "provenance": facts(), "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, separators=(",", ":"))
    options.out.write_text(text.replace('{"model"', '\n{"model"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
