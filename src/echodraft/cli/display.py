"""The text of a stream on stdout, as it is decided; with the drafted tokens in the colour of their source."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from echodraft.decoding.statistics import Phase
from echodraft.targets.huggingface.text import TextStream

if TYPE_CHECKING:
    from echodraft.engine import Result, Stream

__all__ = ["Output", "legend", "summary"]

STYLES = {  # by drafter: what follows a colon is its class
    "suffix_automaton": "bright_green",
    "srsd": "bright_cyan",
    "token_recycling": "bright_yellow",
    "bridge": "bright_magenta",
    "prompt_lookup": "bright_blue",
}
OTHER_STYLE = "bright_red"  # a source added later
ROOT = "root"  # the target itself
PHASES: tuple[Phase, ...] = ("prefill", "draft", "verify")


class Output:
    """Writes what a stream decides.

    stream, tokenizer: whose text it is.
    live:        whether to write at once or at the end.
    show_drafts: whether to colour tokens by source; only where stdout takes colours.
    """

    def __init__(self, stream: Stream, tokenizer: Any, *, live: bool, show_drafts: bool) -> None:
        self._stream = stream
        self._live = live
        self._console = Console(file=sys.stdout)
        colours = show_drafts and self._console.is_terminal and not self._console.no_color
        self._text = TextStream(tokenizer) if colours else None
        self._said = 0  # tokens written if coloured, else characters

    def add(self, piece: str) -> None:
        """Take the stream's next piece."""
        if not self._live:
            return
        if self._text is not None:
            self._coloured(self._stream.token_ids, self._stream.sources)
        else:
            sys.stdout.write(piece)
            self._said += len(piece)
        sys.stdout.flush()

    def finish(self, result: Result) -> None:
        """Write what is missing, and end the line."""
        if self._text is not None:
            self._coloured(result.token_ids, result.sources)
            sys.stdout.write(self._text.finish())
        else:
            sys.stdout.write(result.text[self._said :])
        if not result.text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _coloured(self, ids: SequenceOf[int], sources: SequenceOf[str]) -> None:
        """Write tokens not written yet. A character of several tokens has the colour of the last."""
        assert self._text is not None
        for token, source in list(zip(ids, sources, strict=False))[self._said :]:
            sys.stdout.write(_paint(self._text.push([token]), source))
            self._said += 1


def legend(result: Result, console: Console) -> None:
    """Print which colour stands for which source, and how many tokens came from it."""
    counts = Counter(result.sources)
    own = counts.pop(ROOT, 0)
    colours = console.is_terminal and not console.no_color
    parts = [
        f"{_paint(source, source) if colours else source} {count}" for source, count in counts.most_common()
    ]
    console.file.write(f"drafted: {', '.join(parts) or 'nothing'}; by the model itself: {own}\n")


def summary(result: Result) -> str:
    """One line: tokens, speed, MAT, and where the time went."""
    phases = ", ".join(f"{name} {result.statistics.seconds[name]:.2f} s" for name in PHASES)
    line = (
        f"{result.completion_tokens} tokens in {result.seconds:.2f} s "
        f"({speed(result.completion_tokens, result.seconds)}), MAT {result.statistics.mat:.2f}, "
        f"{phases}"
    )
    return f"{line}, aborted" if result.finish_reason == "abort" else line


def speed(tokens: int, seconds: float) -> str:
    """Tokens per second in words."""
    return f"{tokens / seconds:.1f} tokens/s" if tokens and seconds > 0 else "nothing generated"


def _paint(text: str, source: str) -> str:
    if not text or source == ROOT:
        return text
    style = Style.parse(STYLES.get(source.partition(":")[0], OTHER_STYLE))
    return style.render(text, color_system=ColorSystem.STANDARD)
