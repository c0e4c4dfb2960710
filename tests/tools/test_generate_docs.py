"""Generated parts of the documentation: filled from the code, and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from echodraft.decoding.statistics import Statistics
from echodraft.drafters.registry import DRAFTERS, describe
from tools.generate_docs import Fault, fill, main

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_drafters_has_a_row_for_each():
    page = fill("before <!-- drafters -->old<!-- /drafters --> after")
    assert page.startswith("before <!-- drafters -->\n| drafter |")
    assert page.endswith("|\n<!-- /drafters --> after")
    assert "old" not in page
    for drafter in describe():
        assert f"| `{drafter['name']}` | {drafter['summary']}" in page


@pytest.mark.parametrize("name", DRAFTERS)
def test_options_are_listed_with_type_default_and_help(name):
    page = fill(f"<!-- options:{name} --><!-- /options -->")
    (drafter,) = (d for d in describe() if d["name"] == name)
    for option in drafter["options"]:
        assert f"| `{option['name']}` | {option['type']} | `{option['default']}` | {option['help']} |" in page
    assert drafter["options"] or "No options." in page


def test_help_is_what_the_command_prints_in_a_hundred_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    page = fill("<!-- help:generate --><!-- /help -->\n<!-- help:bench run --><!-- /help -->")
    assert "```\nUsage: echodraft generate [OPTIONS] [PROMPT]\n" in page
    assert "Usage: echodraft bench run" in page
    assert 80 < max(len(line) for line in page.splitlines()) <= 100
    assert "\x1b" not in page
    assert page == fill(page), "filling again changes nothing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- drafters --> no end", "has no <!-- /drafters -->"),
        ("<!-- options:nobody --><!-- /options -->", "no drafter 'nobody'"),
        ("<!-- help:nothing --><!-- /help -->", "echodraft nothing --help fails: error: No such command"),
    ],
)
def test_a_marker_that_cannot_be_filled_is_a_fault(text, message, tmp_path, capsys):
    with pytest.raises(Fault, match=message.replace("(", r"\(")):
        fill(text)
    (tmp_path / "README.md").write_text(text)
    assert main([], tmp_path) == 1
    told = capsys.readouterr().err
    assert told.startswith("generate_docs: README.md: ")
    assert message in told
    assert (tmp_path / "README.md").read_text() == text


def test_check_tells_what_is_out_of_date_and_writes_nothing(tmp_path, capsys):
    page = tmp_path / "docs" / "methods" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- options:prompt_lookup -->\nold\n<!-- /options -->\n")
    assert main(["--check"], tmp_path) == 1
    told = capsys.readouterr()
    assert "-old" in told.out
    assert "docs/methods/page.md" in told.out
    assert "run make docs" in told.err
    assert "old" in page.read_text()
    assert main([], tmp_path) == 0
    assert "old" not in page.read_text()
    assert main(["--check"], tmp_path) == 0


def test_a_wrong_call_is_2(capsys):
    assert main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err


def test_every_statistic_is_explained():
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    for name in Statistics().as_dict():
        assert f"`{name}`" in page, name
