"""Replay of recorded answers, and the transcripts' reference figures."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from echodraft.bench.replay import (
    EDIT,
    CertainTable,
    Tally,
    Transcript,
    in_tune_half,
    load_recordings,
    load_transcripts,
    replay,
    save_recording,
)
from echodraft.decoding.calibration import AcceptanceTable
from echodraft.drafters.registry import build
from echodraft.policies.cost_model import FixedBudget

# Rows of the reference tables: drafter and options.
SUFFIX = {"loops": False}
REFERENCE = {
    "prompt lookup n<=3, 10, first": ("prompt_lookup", {}),
    "suffix, most recent, chain 16": ("suffix_automaton", SUFFIX | {"max_length": 16}),
    "suffix, most recent, chain 48": ("suffix_automaton", SUFFIX | {"max_length": 48}),
    "suffix, length 4+4m, cap 48": (
        "suffix_automaton",
        SUFFIX | {"max_length": 48, "base_length": 4, "per_match": 4},
    ),
}


def whole(table):
    return FixedBudget(table, 64)


def transcript(prompt, output, **more):
    return Transcript("made", "p", np.array(prompt), np.array(output), **more)


def chain(name, item, options, **more):
    """Replay as the reference counts: drafts verified whole, the last forward's root counted."""
    make = partial(_make, name=name, options=options)
    return replay(item, make, table=CertainTable(), budget=whole, count_last_root=True, **more)


def _make(context, name, options):
    return build(name, context, options)


def test_a_copy_is_counted_by_hand():
    # Prompt 1..9, answer 3..8: the first token is the prefill's; prompt lookup then finds 3 and copies
    # 4..8 and 9, of which 4..8 are right; the bonus token lies beyond the answer.
    item = transcript(range(1, 10), range(3, 9))
    cut = replay(item, partial(_make, name="prompt_lookup", options={}), table=CertainTable(), budget=whole)
    assert (cut.steps, cut.tokens, cut.nodes) == (1, 5, 4)  # drafts end one before the limit
    counted = chain("prompt_lookup", item, {})
    assert (counted.steps, counted.tokens, counted.nodes) == (1, 6, 7)


def test_an_answer_found_nowhere_takes_a_step_a_token():
    item = transcript(range(10), range(20, 30))
    statistics = chain("suffix_automaton", item, {})
    assert (statistics.steps, statistics.tokens) == (9, 9)


def test_the_answer_can_be_cut():
    item = transcript(range(10), range(20, 30))
    assert chain("suffix_automaton", item, {}, max_new_tokens=4).tokens == 3


def test_recordings_are_read_back(tmp_path):
    states = {3: np.random.default_rng(0).standard_normal((6, 4)).astype(np.float16)}
    top = np.arange(12).reshape(6, 2)
    save_recording(
        tmp_path / "000.npz", transcript([1, 2, 3], [4, 5, 6], num_layers=8, states=states, successors=top)
    )
    (read,) = load_recordings(tmp_path)
    assert (read.set, read.prompt_id, read.num_layers) == ("made", "p", 8)
    assert np.array_equal(read.states[3], states[3])
    assert read.successors is not None
    assert np.array_equal(read.successors, top)


def test_a_recorded_run_uses_its_states_and_successors():
    # The answer's tokens stand nowhere in the prompt, but the recorded runner-ups name them.
    prompt, output = [1, 2, 3, 1, 2, 3], [7, 8, 7, 8, 7, 8, 7, 8]
    follow = {1: 2, 2: 3, 3: 7, 7: 8, 8: 7}
    top = np.array([[follow[token], 99] for token in [*prompt, *output]])
    item = transcript(prompt, output, successors=top)
    statistics = replay(item, partial(_make, name="token_recycling", options={}))
    assert statistics.steps < 7
    assert statistics.accepted_by_source["token_recycling"] > 0


def test_figures_are_weighted_by_steps_within_a_set_and_geometric_between_sets():
    tally = Tally()
    for name, length in (("a", 3), ("a", 9), ("b", 5)):
        tally.add(name, chain("suffix_automaton", transcript(range(20), range(1, length + 1)), {}))
    assert tally.mat(["a"]) == pytest.approx((3 + 9) / 2)
    assert tally.mat() == pytest.approx((3 + 9 + 5) / 3)
    assert tally.geometric(["a", "b"]) == pytest.approx((6 * 5) ** 0.5)


def test_halves_are_by_the_hash_of_the_id():
    halves = [in_tune_half(str(i)) for i in range(2000)]
    assert 900 < sum(halves) < 1100
    assert halves == [in_tune_half(str(i)) for i in range(2000)]


def reference_rows():
    folder = os.environ.get("ECHODRAFT_TEST_DATA", "")
    if not folder:
        return []
    text = (Path(folder) / "transcripts" / "README.md").read_text(encoding="utf-8")
    rows = []
    for model, table in re.findall(r"^### (\S+)\n\n((?:\|.*\n?)+)", text, re.M):
        head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        rows += [(model, dict(zip(head, line, strict=True))) for line in lines if line[0] in REFERENCE]
    return rows


@pytest.mark.models
def test_the_transcripts_reference_figures_are_met_to_the_printed_digit():
    rows = reference_rows()
    assert len(rows) == 8, "set ECHODRAFT_TEST_DATA to the folder of the data sets"
    folder = Path(os.environ["ECHODRAFT_TEST_DATA"]) / "transcripts"
    wrong = []
    for model, row in rows:
        name, options = REFERENCE[row["drafter"]]
        tally = Tally()
        for item in load_transcripts(folder / f"{model}.jsonl"):
            tally.add(item.set, chain(name, item, options))
        figures = {
            "all": tally.mat(),
            "EDIT pooled": tally.mat(EDIT),
            "EDIT geometric": tally.geometric(EDIT),
        }
        figures |= {"nodes": tally.nodes()} | {name: tally.mat([name]) for name in tally.sets}
        for column, printed in row.items():
            if column != "drafter":
                digits = len(printed.partition(".")[2])
                if f"{figures[column]:.{digits}f}" != printed:
                    wrong.append((model, row["drafter"], column, printed, figures[column]))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_table_that_is_certain_says_one_and_still_learns():
    assert CertainTable().rate(("x",)) == 1.0
    assert isinstance(CertainTable(), AcceptanceTable)
