"""The shipped priors."""

from __future__ import annotations

from importlib import resources

from echodraft.decoding.calibration import UNKNOWN, AcceptanceTable
from echodraft.drafters.priors import bin_of, key_of, load_priors
from echodraft.drafters.registry import DRAFTERS


def test_rates_are_probabilities_and_the_file_is_small():
    priors = load_priors()
    assert all(0.0 < rate < 1.0 for rate in priors.values())
    assert len(resources.files("echodraft.drafters").joinpath("priors.json").read_bytes()) < 40_000


def test_names_of_bins_are_read_back():
    for key in load_priors():
        assert bin_of(key_of(key)) == key


def test_longer_matches_are_right_more_often():
    priors = load_priors()
    for kind in ("anchored", "suffix"):
        assert priors[kind, "match", 32] > 0.97 > priors[kind, "match", 2]
    assert priors["recycling", 0, 0] > priors["recycling", 0, 3]
    assert priors["first", 16] > 0.9 > 0.1 > priors["first", 2]


def test_a_bin_without_a_prior_takes_that_of_the_next_wider_one():
    table = AcceptanceTable({("a",): 0.6, ("a", 1): 0.7})
    assert table.rate(("a", 1, 5)) == 0.7
    assert table.rate(("a", 2)) == 0.6
    assert table.rate(("b", 1)) == UNKNOWN


def test_every_drafter_has_rates_of_its_own():
    kinds = {str(key[0]) for key in load_priors()}
    assert kinds >= {"first", "anchored", "shifted", "filler", "recycling", "suffix", "prompt_lookup"}
    assert len(DRAFTERS) == 6
