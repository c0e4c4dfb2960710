"""Text: prompts to ids, and ids to text as they are decided.

A stream gives only text that later tokens cannot change: bytes of a character that is not complete yet
are held back. The concatenation of all it gives equals decoding all ids at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

from transformers import PreTrainedTokenizerBase

from echodraft.errors import InvalidRequest

__all__ = ["Message", "TextStream", "decode", "encode_chat", "encode_raw"]

Message = Mapping[str, Any]

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a decoder gives for bytes that are no character (yet)
# Ids decoded again with new ones: enough for a character's bytes and for a word piece that shows or
# hides its leading space by what stands before it.
LOOK_BEHIND = 8
BYTE_PIECE = re.compile("<0x[0-9A-Fa-f]{2}>")


def decode(tokenizer: PreTrainedTokenizerBase, ids: SequenceOf[int]) -> str:
    """The text of `ids`, special tokens left out."""
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text)


def encode_raw(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of `text` as it stands, with the tokenizer's own special tokens around it."""
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids


def encode_chat(tokenizer: PreTrainedTokenizerBase, messages: SequenceOf[Message]) -> list[int]:
    """Ids of a conversation in the model's chat template, ready for the assistant's answer.

    raises: InvalidRequest if the model has no template or the template refuses the messages.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidRequest("this model has no chat template; give a raw prompt (--raw, raw=True)")
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise InvalidRequest(f"a message needs 'role' and 'content', got {message!r}")
    try:
        encoded: Any = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=True
        )
    except Exception as error:  # templates raise what they like
        raise InvalidRequest(f"the model's chat template refuses these messages: {error}") from error
    ids: list[int] = list(encoded["input_ids"])
    return ids


class TextStream:
    """Turns ids into text piece by piece.

    `push` gives what can be said for certain, `finish` the rest; together they give `decode(all ids)`.
    Cost per call does not grow with the length of the text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # decoding starts here again
        self._said = 0  # ids before this one are said
        self._text = ""
        added = tokenizer.added_tokens_decoder.items()
        self._special = {*tokenizer.all_special_ids, *(token for token, what in added if what.special)}

    @property
    def text(self) -> str:
        """All text given so far."""
        return self._text

    def push(self, ids: SequenceOf[int]) -> str:
        """Add decided ids; the text that is certain now."""
        self._ids.extend(ids)
        end = self._end_of_certain()
        before = decode(self._tokenizer, self._ids[self._start : self._said])
        now = decode(self._tokenizer, self._ids[self._start : end])
        if now.endswith(INCOMPLETE) or not now.startswith(before):
            return ""
        self._said = end
        self._start = max(self._said - LOOK_BEHIND, self._start)
        while self._start < self._said and self._breaks_character():
            self._start += 1
        return self._give(now[len(before) :])

    def finish(self) -> str:
        """What was held back, an incomplete character included."""
        whole = decode(self._tokenizer, self._ids)
        if whole.startswith(self._text):
            return self._give(whole[len(self._text) :])
        before = decode(self._tokenizer, self._ids[self._start : self._said])
        return self._give(decode(self._tokenizer, self._ids[self._start :])[len(before) :])

    def _end_of_certain(self) -> int:
        """Where the ids end that later ones cannot change.

        SentencePiece writes what it lacks as one token a byte, <0xE4>, and decodes a run of them as a
        whole: one broken character makes all of it unreadable. So a run is undecided until it ends;
        special tokens, which are left out, do not end it.
        """
        end = len(self._ids)
        while end > self._said and self._is_open(self._ids[end - 1]):
            end -= 1
        return end

    def _is_open(self, token: int) -> bool:
        if token in self._special:
            return True
        piece = self._tokenizer.convert_ids_to_tokens(token)
        return isinstance(piece, str) and BYTE_PIECE.fullmatch(piece) is not None

    def _breaks_character(self) -> bool:
        """Whether the ids from the start on begin inside a character."""
        return decode(self._tokenizer, self._ids[self._start : self._said]).startswith(INCOMPLETE)

    def _give(self, text: str) -> str:
        self._text += text
        return text
