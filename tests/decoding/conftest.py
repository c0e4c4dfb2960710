"""All tests here run on one thread, and hypothesis without a deadline (shared machines are uneven)."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("echodraft", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("echodraft")


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Tiny models only."""
