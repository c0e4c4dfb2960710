"""The main job in one command (`make demo`): a real model corrects a text, several tokens at a time.

The embedded 135M model corrects the spelling of a paragraph; tokens that were drafted and accepted are
coloured by what drafted them. Then the same is decoded plainly in the same process, and ids and times are
compared. Ends with 1 if the ids differ or the correction is not what was asked for.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from echodraft import Engine
from echodraft.cli.compare import compare, plain_options, warm_up
from echodraft.cli.display import Output, legend, summary
from echodraft.cli.progress import ConsoleProgress

# Two corrections as examples: a model this small follows examples better than instructions.
EXAMPLES = """\
Correct the spelling.

Text: The weather was beautifull, so we went to the beach and stayed untill the evening.
Corrected: The weather was beautiful, so we went to the beach and stayed until the evening.

Text: My freind lives in a small house near the river with her two dogs.
Corrected: My friend lives in a small house near the river with her two dogs.

"""
TEXT = (
    "The lighthouse keeper climbed the hundred and twelve steps every evening to light the lamp, in fog and "
    "in storm, and he was never late. He had done so for thirty-one years, and he was very proud of it. On "
    "Monday a letter from the goverment arrived, and his daughter read it to him. The old lamp, it said, "
    "would be replaced by a new one in the spring."
)
WRONG, RIGHT = "goverment", "government"


def main() -> int:
    """Run it; the exit code."""
    console = Console(file=sys.stdout, highlight=False)
    with ConsoleProgress() as progress:
        engine = Engine.from_pretrained(progress=progress)
        prompt = engine.encode(f"{EXAMPLES}Text: {TEXT}\nCorrected:", raw=True)
        warm_up(engine, prompt)
    line_ends = [id for text in ("\n", "\n\n") for id in engine.encode(text, raw=True)]
    request: dict[str, Any] = {"ids": prompt, "max_new_tokens": 160, "stop_token_ids": line_ends}

    console.print("The text to correct:\n", style="bold")
    console.print(f" {TEXT}\n", soft_wrap=True)
    console.print("The model's answer, drafted tokens coloured by what drafted them:\n", style="bold")
    stream = engine.stream(**request)
    output = Output(stream, engine.tokenizer, live=True, show_drafts=True)
    for piece in stream:
        output.add(piece)
    drafted = stream.result
    output.finish(drafted)
    print()
    legend(drafted, console)

    plain = engine.generate(**plain_options(request))
    print(f"drafted: {summary(drafted)}")
    print(f"plain:   {summary(plain)}")
    comparison = compare(drafted, plain)
    if drafted.text.strip() != TEXT.replace(WRONG, RIGHT):
        print(f"the model did not correct {WRONG!r} to {RIGHT!r}, or changed something else")
        return 1
    print(f"the one typo, {WRONG!r}, is corrected and nothing else is changed")
    if not comparison.identical or not comparison.speedup:
        print(f"drafted and plain decoding do not agree: {comparison}")
        return 1
    print(
        f"{drafted.completion_tokens} tokens, {comparison.speedup:.1f}x as fast as plain decoding, "
        f"MAT {drafted.statistics.mat:.1f}, ids identical"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
