"""Real models: drafted text is plain text, and plain text is that of transformers' `generate`.

The work is `tools/check_lossless.py`; here every run of it is a test. The numbers of prompts are those of
the project's statement; ECHODRAFT_TEST_PROMPTS lowers them. Hours at full size, on two cores.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.check_lossless import PRICED, TOKENS_PER_NEAR_TIE, Check, check_model

pytestmark = [pytest.mark.models, pytest.mark.timeout(12 * 3600)]

CHECKS = {
    "smollm2": Check("smollm2", prompts=200, tokens=64),
    "qwen-coder": Check("qwen-coder", prompts=40, tokens=128),
    "gemma3": Check("gemma3", prompts=40, tokens=64, raw=True),
}
DRAFTERS = CHECKS["smollm2"].drafters


@pytest.fixture(scope="module", params=list(CHECKS))
def checked(request, tmp_path_factory) -> dict[str, Any]:
    """What came out for one model: all runs of all its prompts, made anew."""
    check = CHECKS[request.param]
    if most := os.environ.get("ECHODRAFT_TEST_PROMPTS"):
        check = replace(check, prompts=min(check.prompts, int(most)))
    folder = Path(os.environ["ECHODRAFT_TEST_MODELS"]) / check.model
    assert folder.is_dir(), f"no folder {check.model!r} among the models: nothing would be checked"
    data = os.environ.get("ECHODRAFT_TEST_DATA")
    out = tmp_path_factory.mktemp("lossless") / f"{check.model}.json"
    return check_model(check, folder, Path(data) if data else None, out, None)


def assert_same_text(run: dict[str, Any]) -> None:
    """Equal, or near ties proven in fp64, at most one in 20,000 tokens (one may fall into any sample)."""
    assert run["tokens"] > 0
    assert not run["different"]
    assert len(run["near_ties"]) <= max(1, run["tokens"] // TOKENS_PER_NEAR_TIE), run["near_ties"]
    assert run["identical"] + len(run["near_ties"]) == run["prompts"]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drafts_are_accepted_and_change_nothing(checked, drafter, record_property):
    run = checked["runs"][drafter]
    for figure in ("prompts", "tokens", "identical", "forwards", "accepted"):
        record_property(figure, run[figure])
    assert_same_text(run)
    assert run["prompts"] == checked["prompts"]
    # By the hook on the model, not by our statistics: fewer forwards than tokens ...
    assert run["saved_forwards"] > 0
    assert run["drafted_rows"] > 0
    # ... and the statistics say the same.
    assert run["miscounted"] == 0
    assert run["accepted"] >= run["saved_forwards"]


def test_the_default_settings_change_nothing(checked, record_property):
    run = checked["runs"][PRICED]
    for figure in ("prompts", "tokens", "identical", "forwards", "accepted"):
        record_property(figure, run[figure])
    assert_same_text(run)
    assert run["miscounted"] == 0


def test_plain_decoding_is_that_of_generate(checked, record_property):
    run = checked["runs"]["generate"]
    for figure in ("prompts", "tokens", "identical"):
        record_property(figure, run[figure])
    assert_same_text(run)
    assert run["saved_forwards"] == 0
    assert checked["runs"]["plain"]["saved_forwards"] == 0


def test_some_prompts_go_past_the_prefill_chunk_and_sliding_windows(checked):
    assert checked["prompts_past_512"] > 0
    assert not checked["faults"]
    assert not checked["missing"]
