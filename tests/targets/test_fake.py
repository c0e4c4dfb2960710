"""The scripted target keeps the contract of a target, so that drafters can be tested on it."""

from __future__ import annotations

import numpy as np

from echodraft.decoding.interfaces import Needs
from echodraft.decoding.sequence import Sequence, Verification
from echodraft.decoding.stopping import StopRule
from echodraft.decoding.tree import Path, merge
from echodraft.targets.fake import ScriptedTarget
from tests.doubles import Oracle, run

SCRIPT = [11, 12, 13, 14]
PROMPT = [7, 8, 7]


def test_it_emits_its_script_and_then_zeros():
    target = ScriptedTarget(SCRIPT)
    assert run(target, PROMPT, limit=6).ids == [*SCRIPT, 0, 0]
    assert target.forwards == target.rows == 5
    assert not target.live


def test_its_end_tokens_and_limits_are_those_given():
    target = ScriptedTarget(SCRIPT, end_tokens=[13], context_limit=50)
    assert target.info.end_tokens == {13}
    assert target.info.context_limit == 50
    assert run(target, PROMPT, Oracle(text=SCRIPT, k=4), end=[13]).outcome == (SCRIPT[:3], "stop")


def test_off_the_script_it_predicts_nothing_that_a_draft_could_match():
    target = ScriptedTarget(SCRIPT)
    sequence = Sequence(PROMPT, StopRule(frozenset(), 9))
    sequence.commit(Verification((), (target.prefill(sequence, Needs()).argmax(-1),)))
    tree = merge(11, [Path([12, 99, 14], [0.9] * 3, "a"), Path([12, 13], [0.9] * 2, "b")])
    rows = target.verify(sequence, tree)
    assert [rows.argmax(node) for node in range(len(tree))] == [12, 13, -1, -1, 14]


def test_states_and_successors_of_a_real_run_come_back_by_position():
    states = {2: np.arange(21, dtype=np.float32).reshape(7, 3)}
    successors = np.array([[5, 6]] * 7)
    target = ScriptedTarget(SCRIPT, states=states, successors=successors)
    sequence = Sequence(PROMPT, StopRule(frozenset(), 9))
    rows = target.prefill(sequence, Needs(frozenset({1, 2}), 2))
    assert rows.states[2].tolist() == states[2][:3].tolist()
    assert rows.states[1].shape == (3, 8)
    assert list(rows.positions) == [0, 1, 2]
    assert rows.top([2], 2).tolist() == [[11, 5]]
    sequence.commit(Verification((), (11,)))
    verified = target.verify(sequence, merge(11, [Path([12, 13], [0.9] * 2, "a")]))
    assert verified.states[2].tolist() == states[2][3:6].tolist()
    assert verified.top([0, 1], 1).tolist() == [[12], [13]]
