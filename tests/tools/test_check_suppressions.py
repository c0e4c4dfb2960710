"""tools/check_suppressions.py, on small projects made for the purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.check_suppressions import FOLDERS, KINDS, LIMITS, count, main

# Put together here, so that this file holds none of them itself when it is counted as text.
IGNORE, PRAGMA, NOQA = "# type: " + "ignore[arg-type]", "# pragma: " + "no cover", "# noqa" + ": E501"


@pytest.fixture
def project(tmp_path: Path):
    """A project with the given source lines and limits; returns its root."""

    def make(*lines: str, **limits: int) -> Path:
        for folder in FOLDERS:
            (tmp_path / folder / "deep").mkdir(parents=True, exist_ok=True)
        (tmp_path / "src/deep/module.py").write_text("".join(f"{line}\n" for line in lines))
        names = {"ignore": "type: ignore", "pragma": "pragma: no cover", "noqa": "noqa"}
        values = {name: limits.get(short, 0) for short, name in names.items()}
        (tmp_path / LIMITS).write_text(json.dumps(values))
        return tmp_path

    return make


def limits_of(root: Path) -> dict[str, int]:
    return json.loads((root / LIMITS).read_text())


@pytest.mark.parametrize(
    ("comment", "kind"),
    [
        (IGNORE, "type: ignore"),
        ("#type:" + "ignore", "type: ignore"),
        ("# mypy: " + "ignore-errors", "type: ignore"),
        ("# mypy: " + "disable-error-code=arg-type", "type: ignore"),
        (PRAGMA, "pragma: no cover"),
        ("# PRAGMA " + "NO BRANCH", "pragma: no cover"),
        (NOQA, "noqa"),
        ("# ruff: " + "noqa", "noqa"),
        ("# NOQA", "noqa"),
    ],
)
def test_each_spelling_counts_once_as_its_kind(comment, kind, project):
    counts = count(project(f"x = 1  {comment}"))
    assert {name: counts[name] for name in KINDS} == {name: int(name == kind) for name in KINDS}


def test_two_in_one_comment_are_two(project):
    counts = count(project(f"x = 1  {IGNORE}  {NOQA}"))
    assert counts == {"type: ignore": 1, "noqa": 1, "pragma: no cover": 0}


def test_strings_are_not_comments(project):
    assert count(project(f'x = "{IGNORE} {PRAGMA} {NOQA}"')).total() == 0


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_counted(folder, project):
    root = project()
    (root / folder / "deep" / "other.py").write_text(f"x = 1  {NOQA}\n")
    assert count(root)["noqa"] == 1


def test_equal_numbers_pass(project):
    assert main([], project(f"x = 1  {NOQA}", f"y = 2  {IGNORE}", noqa=1, ignore=1)) == 0


def test_one_more_fails_and_names_both_numbers(project, capsys):
    root = project(f"x = 1  {NOQA}", f"y = 2  {NOQA}", noqa=1)
    assert main([], root) == 1
    assert "2 times 'noqa', 1 are allowed" in capsys.readouterr().err


def test_one_fewer_fails_until_the_number_is_lowered(project, capsys):
    root = project(f"x = 1  {PRAGMA}", pragma=3)
    assert main([], root) == 1
    assert "lower it" in capsys.readouterr().err
    assert main(["--update"], root) == 0
    assert limits_of(root)["pragma: no cover"] == 1
    assert main([], root) == 0


def test_update_never_raises_a_number(project):
    root = project(f"x = 1  {NOQA}", f"y = 2  {IGNORE}", noqa=0, ignore=5)
    assert main(["--update"], root) == 1
    assert limits_of(root) == {"noqa": 0, "pragma: no cover": 0, "type: ignore": 1}


def test_a_kind_without_a_number_is_not_unlimited(project, capsys):
    root = project(f"x = 1  {NOQA}")
    (root / LIMITS).write_text('{"type: ignore": 0, "pragma: no cover": 0}')
    assert main([], root) == 1
    assert "exactly the keys" in capsys.readouterr().err


def test_a_wrong_call_exits_with_2(project):
    assert main(["--raise"], project()) == 2
