"""Where a prompt comes from: an argument, a file, standard input, or a file of ids.

All of it is checked before a model is loaded.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from echodraft.errors import InvalidRequest

__all__ = ["PromptSource", "read_prompt"]


@dataclass(frozen=True, slots=True)
class PromptSource:
    """A prompt as text or as ids; one of the two is None."""

    text: str | None = None
    ids: list[int] | None = None


def read_prompt(
    prompt: str | None, file: Path | None, ids_file: Path | None, *, system: str | None, raw: bool
) -> PromptSource:
    """The prompt meant.

    raises: InvalidRequest for none or several sources, a file that cannot be read, nothing in it.
    """
    given = [
        name
        for name, value in {"PROMPT": prompt, "--file": file, "--ids-file": ids_file}.items()
        if value is not None
    ]
    if not given:
        raise InvalidRequest("no prompt; give it as PROMPT, with -f FILE, or - to read standard input")
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} are both given; give one prompt")
    if system is not None and raw:
        raise InvalidRequest("--system needs the chat template, which --raw leaves out; give one of them")
    if system is not None and ids_file is not None:
        raise InvalidRequest(
            "--system does not go with --ids-file, which is the whole prompt; give one of them"
        )
    if raw and ids_file is not None:
        raise InvalidRequest("--raw does not go with --ids-file, which is taken as it stands; leave it out")
    if ids_file is not None:
        return PromptSource(ids=_ids(ids_file))
    if file is not None:
        text, where = _decode(_read(file), str(file)), f"the file {file}"
    elif prompt == "-":
        text, where = _decode(sys.stdin.buffer.read(), "standard input"), "standard input"
    else:
        text, where = prompt or "", "the prompt"
    if not text.strip():
        raise InvalidRequest(f"{where} is empty; say what to do")
    return PromptSource(text=text)


def _ids(file: Path) -> list[int]:
    try:
        ids = json.loads(_decode(_read(file), str(file)))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{file} is no JSON ({error}); write a list of token ids: [1, 2, 3]") from None
    if not isinstance(ids, list):
        raise InvalidRequest(f"{file} is no JSON list; write a list of token ids: [1, 2, 3]")
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise InvalidRequest(
                f"{file}: {token!r} is no token id; write a list of whole numbers: [1, 2, 3]"
            )
    if not ids:
        raise InvalidRequest(f"{file} is an empty list; give at least one token id")
    return ids


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"cannot read {file} ({why}); name a file with the prompt") from None


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{where} is not UTF-8 text (byte {error.start}); convert it first") from None
