"""tools/check_skips.py, on reports that pytest itself writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_skips import main

# One test of each kind that a report can hold.
TESTS = """
import pytest

def test_that_passes(): ...

@pytest.mark.skip(reason="no GPU here")
def test_skipped(): ...

@pytest.mark.xfail(reason="known bug")
def test_expected_to_fail(): assert False

class TestGroup:
    @pytest.mark.parametrize("value", ["a[1]", "b"])
    def test_inside(self, value): pytest.skip("inside")
"""
SKIPPED = [
    "tests/unit/test_kinds.py::test_skipped",
    "tests/unit/test_kinds.py::test_expected_to_fail",
    "tests/unit/test_kinds.py::TestGroup::test_inside[a[1]]",
    "tests/unit/test_kinds.py::TestGroup::test_inside[b]",
    "tests/unit/test_whole_file.py",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    tests = root / "tests" / "unit"
    tests.mkdir(parents=True)
    (tests / "test_kinds.py").write_text(TESTS)
    (tests / "test_whole_file.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    (root / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\naddopts = --import-mode=importlib\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=junit.xml",
        "tests",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "1 passed, 4 skipped, 1 xfailed" in done.stdout, done.stdout
    return root / "junit.xml"


@pytest.fixture
def allow(tmp_path: Path):
    def write(*lines: str) -> str:
        path = tmp_path / "allowed.txt"
        path.write_text("# a header\n\n" + "".join(f"{line}\n" for line in lines))
        return str(path)

    return write


def test_all_skips_listed_with_a_reason_pass(report, allow, capsys):
    assert main([str(report), allow(*(f"{node}  # needs what is not here" for node in SKIPPED))]) == 0
    assert "6 tests, 5 skipped or xfailed" in capsys.readouterr().out


@pytest.mark.parametrize("missing", SKIPPED)
def test_one_unlisted_skip_fails_and_is_named_alone(missing, report, allow, capsys):
    others = [f"{node}  # reason" for node in SKIPPED if node != missing]
    assert main([str(report), allow(*others)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f" {missing} was " in line


def test_the_message_tells_kind_and_reason(report, allow, capsys):
    assert main([str(report), allow()]) == 1
    errors = capsys.readouterr().err
    assert "test_skipped was skipped (no GPU here)" in errors
    assert "test_expected_to_fail was xfailed (known bug)" in errors
    assert "test_whole_file.py was skipped (could not import 'no_such_module'" in errors


def test_a_star_stands_for_any_characters_and_brackets_for_themselves(report, allow):
    lines = [f"{node}  # reason" for node in (*SKIPPED[:2], SKIPPED[4])]
    assert main([str(report), allow(*lines, "tests/*::TestGroup::*  # reason")]) == 0
    # as a character class, [ab] would match test_insidea, not test_inside[b]
    assert main([str(report), allow(*lines, "*test_inside[ab]  # reason")]) == 1


def test_a_listed_test_that_runs_is_fine(report, allow):
    lines = [f"{node}  # reason" for node in (*SKIPPED, "tests/unit/test_kinds.py::test_that_passes")]
    assert main([str(report), allow(*lines)]) == 0


@pytest.mark.parametrize("line", ["tests/unit/test_kinds.py::*", "tests/unit/test_kinds.py::*  #  "])
def test_an_entry_without_a_reason_fails(line, report, allow, capsys):
    assert main([str(report), allow(line)]) == 1
    assert "has no reason" in capsys.readouterr().err


def test_a_report_without_tests_fails(tmp_path, allow, capsys):
    empty = tmp_path / "empty.xml"
    empty.write_text("<testsuites><testsuite/></testsuites>")
    assert main([str(empty), allow()]) == 1
    assert "no test at all" in capsys.readouterr().err


def test_a_missing_or_broken_report_is_one_sentence(tmp_path, allow, capsys):
    broken = tmp_path / "broken.xml"
    broken.write_text("<testsuites>")
    for report in (broken, tmp_path / "none.xml"):
        assert main([str(report), allow()]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_report_without_file_names_is_refused(tmp_path, allow, capsys):
    report = tmp_path / "xunit2.xml"
    report.write_text('<testsuite><testcase classname="a" name="b"><skipped/></testcase></testsuite>')
    assert main([str(report), allow("*  # reason")]) == 1
    assert "xunit1" in capsys.readouterr().err


def test_a_wrong_call_exits_with_2():
    assert main([]) == 2
