"""Every Python block in README, CONTRIBUTING and docs is executed, in order, on the embedded model."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def test_the_pages_that_promise_code_have_some() -> None:
    names = {page.name for page in WITH_CODE}
    assert {"README.md", "CONTRIBUTING.md", "library.md"} <= names


@pytest.mark.usefixtures("embedded_cache", "one_thread")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("snippet")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), module.__dict__)
