"""All tests here run on one thread: everything is tiny."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Tiny states only."""
