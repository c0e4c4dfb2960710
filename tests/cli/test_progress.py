"""Progress: for a person who looks, only for what takes long, and gone when it is done."""

from __future__ import annotations

import contextlib
import io
import sys
import time

import pytest
from rich.console import Console

from echodraft.cli import progress
from echodraft.cli.interrupt import Interrupt
from echodraft.cli.progress import ConsoleProgress


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_takes_long_is_shown_and_taken_away(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    terminal = console(True)
    with ConsoleProgress(terminal) as report:
        report("loading", 0, 1)
        time.sleep(0.2)
        assert "loading ..." in written(terminal)
        report("loading", 1, 1)
        after = written(terminal)
        assert after.endswith("\x1b[2K"), "the line is cleared"
        report("prefill", 512, 2048)
        time.sleep(0.2)
        report("prefill", 1024, 2048)
        assert "1024/2048" in written(terminal)
    assert written(terminal).endswith("\x1b[2K"), "leaving the block clears it too"


def test_a_redirection_begun_before_the_bar_appears_survives_it(monkeypatch):
    """It once took over sys.stderr, and gave it back to a buffer that nobody reads."""
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    before, buffer = sys.stderr, io.StringIO()
    with ConsoleProgress(console(True)) as report:
        report("converting GGUF", 0, 1)
        with contextlib.redirect_stderr(buffer):
            time.sleep(0.2)
            assert sys.stderr is buffer
        report("converting GGUF", 1, 1)
    assert sys.stderr is before


def test_what_is_quick_is_not_shown():
    terminal = console(True)
    with ConsoleProgress(terminal) as report:
        for done in range(11):
            report("calibrating", done, 10)
        report("loading", 0, 1)
    time.sleep(0.05)
    assert written(terminal) == ""


def test_nothing_is_written_where_nobody_looks(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    pipe = console(False)
    with ConsoleProgress(pipe) as report:
        report("loading", 0, 1)
        time.sleep(0.05)
        report("prefill", 1, 2)
        time.sleep(0.05)
    assert written(pipe) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_noted_ctrl_c_ends_the_work_at_the_next_report(terminal):
    interrupt = Interrupt()
    report = ConsoleProgress(console(terminal), interrupt)
    report("prefill", 1, 3)
    interrupt.pressed = True
    with pytest.raises(KeyboardInterrupt):
        report("prefill", 2, 3)
