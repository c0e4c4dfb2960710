"""Progress of what takes long, on stderr, for a person who looks.

A bar appears only if stderr is a terminal and the work has run for a second; when the work is done it
goes again. Elsewhere, nothing is written.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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
        if (bar := self._bar) is not None and bar.tasks:
            bar.update(bar.tasks[0].id, completed=done, total=total if total > 1 else None)

    def clear(self) -> None:
        """Take the bar away, or see to it that none appears."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()
            self._what, self._timer, self._bar = "", None, None

    def _begin(self, what: str, total: int) -> None:
        columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        if total > 1:
            columns.insert(2, MofNCompleteColumn())
        bar = Progress(*columns, console=self._console, transient=True)
        bar.add_task(what, total=total if total > 1 else None)  # one piece of work: it only moves
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
