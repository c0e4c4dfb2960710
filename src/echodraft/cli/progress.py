"""Progress of what takes long, on stderr, for a person who looks.

A bar appears only if stderr is a terminal and the work has run for a second; when the work is done it
goes again. Elsewhere, nothing is written. It is drawn when work is reported and never in between, so that
it takes no time from what is measured.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from echodraft.cli.interrupt import Interrupt

__all__ = ["ConsoleProgress"]

PATIENCE = 1.0  # seconds before a bar appears


class ConsoleProgress:
    """A progress callback (what, done, total) that draws one bar at a time; a context manager.

    interrupt: where a Ctrl-C is noted; the next report then ends the work with KeyboardInterrupt.
    """

    def __init__(self, console: Console | None = None, interrupt: Interrupt | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._what = ""
        self._timer: threading.Timer | None = None
        self._bar: Progress | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._interrupt is not None and self._interrupt.pressed:
            self.clear()
            raise KeyboardInterrupt
        if not self._console.is_terminal:
            return
        if done >= total:
            self.clear()
            return
        if what != self._what:
            self.clear()
            self._begin(what, total)
        if self._bar is not None and total > 1:
            self._bar.update(self._bar.tasks[0].id, completed=done, total=total, refresh=True)

    def clear(self) -> None:
        """Take the bar away, or see to it that none appears."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()
            self._what, self._timer, self._bar = "", None, None

    def _begin(self, what: str, total: int) -> None:
        columns: list[ProgressColumn] = [TextColumn("{task.description} ...")]
        if total > 1:
            columns += [BarColumn(), MofNCompleteColumn()]
        # sys.stdout and sys.stderr stay as they are: whoever loads a model may have redirected them.
        bar = Progress(
            *columns,
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        bar.add_task(what, total=total)
        timer = threading.Timer(PATIENCE, self._show, [bar])
        timer.daemon = True
        self._what, self._timer, self._bar = what, timer, bar
        timer.start()

    def _show(self, bar: Progress) -> None:
        with self._lock:
            if bar is self._bar:
                bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
