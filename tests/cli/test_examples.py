"""The examples that help and documentation open with are command lines that work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from echodraft import Engine
from tests.cli.conftest import ROOT

LINE = re.compile(r"^ *(?:\$ )?(?:git diff \| )?echodraft (?!\[)(.+)$", re.MULTILINE)
PAGES = ("README.md", "docs/cli.md")


class Reached(Exception):
    """The command line was right: a model would be loaded now."""


def examples() -> list[str]:
    found: list[str] = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found += LINE.findall(block)
    return sorted(set(found))


def test_there_are_examples_of_every_command():
    assert {line.split()[0] for line in examples()} == {"generate", "drafters", "doctor", "bench"}


@pytest.mark.parametrize("line", examples())
def test_an_example_is_a_right_command_line(run, line, tmp_path, monkeypatch):
    def reached(*arguments, **options):
        raise Reached

    monkeypatch.setattr(Engine, "from_pretrained", reached)
    monkeypatch.setattr("echodraft.bench.runner.load_model", reached)
    monkeypatch.chdir(tmp_path)
    Path("prompt.txt").write_text("Say hello.", encoding="utf-8")
    suite = Path("FOLDER")
    suite.mkdir()
    (suite / "manifest.json").write_text('{"a": {"file": "a.jsonl"}}', encoding="utf-8")
    (suite / "a.jsonl").write_text('{"id": "1", "prompt_ids": [1, 2]}', encoding="utf-8")
    arguments = shlex.split(line, comments=True)
    if arguments[0] == "drafters":
        assert run(*arguments).code == 0
        return
    with pytest.raises(Reached):
        pytest.fail(str(run(*arguments, stdin=b"a change")))
