"""Streams of text: what they give, joined, is decoding all ids at once, whatever was decided when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from echodraft.errors import InvalidRequest
from echodraft.targets.huggingface import text as text_module
from echodraft.targets.huggingface.text import LOOK_BEHIND, TextStream, decode, encode_chat, encode_raw
from tests import tiny

BYTES = tiny.byte_tokenizer()
PIECES = tiny.sentencepiece_tokenizer()
MARKS = tiny.sentencepiece_tokenizer(byte_fallback=False)
CHARACTERS = st.sampled_from(
    ["a", " ", "\n", "é", "e\u0301", "你", "好", "🎉", "👩‍👩‍👧", "\ufffd", "ß", "\u200d"]
)
TEXTS = st.lists(CHARACTERS, max_size=30).map("".join)


def split(ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """`ids` in steps of these sizes, the sizes again and again."""
    steps, start, turn = [], 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        steps.append(list(ids[start : start + size]))
        start, turn = start + size, turn + 1
    return steps


def streamed(tokenizer: PreTrainedTokenizerFast, steps: Sequence[Sequence[int]]) -> tuple[list[str], str]:
    """The pieces given at each step, and the last one."""
    stream = TextStream(tokenizer)
    pieces = [stream.push(step) for step in steps]
    last = stream.finish()
    assert stream.text == "".join(pieces) + last
    return pieces, last


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=5)
ANY_BYTES = st.lists(st.integers(0, tiny.VOCABULARY - 1), max_size=40)
ANY_PIECES = st.lists(
    st.one_of(
        st.integers(0, len(PIECES) - 1),
        st.integers(259, len(PIECES) - 1),
        st.sampled_from([2, *[3 + byte for byte in "é你🎉".encode()]]),
    ),
    max_size=40,
)
ANY_MARKS = st.lists(st.integers(0, len(MARKS) - 1), max_size=30)


@given(TEXTS, SIZES)
def test_text_comes_out_as_it_went_in_and_whole_characters_only(text, sizes):
    """Fault reports 45-47: characters of several tokens, split in every way."""
    pieces, last = streamed(BYTES, split(encode_raw(BYTES, text), sizes))
    assert "".join(pieces) + last == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in [*pieces, last])


@settings(max_examples=300)
@given(ANY_BYTES, SIZES)
def test_any_bytes_valid_or_not_join_to_what_decoding_all_gives(ids, sizes):
    pieces, last = streamed(BYTES, split(ids, sizes))
    assert "".join(pieces) + last == decode(BYTES, ids)


@settings(max_examples=400)
@given(ANY_PIECES, SIZES)
@example([3 + byte for byte in "🎉🎉".encode()][:6], [1])
@example([260] + [2] * 12 + [260], [1])
@example([260, 3 + 0xE4, 3 + 0xBD, 2, 3 + 0xA0], [1])
@example([*[3 + 0x80] * 12, 260], [1])
def test_word_pieces_with_byte_fallback_join_to_what_decoding_all_gives(ids, sizes):
    """A run of byte tokens that ends inside a character decodes to other text than its beginning did."""
    pieces, last = streamed(PIECES, split(ids, sizes))
    assert "".join(pieces) + last == decode(PIECES, ids)


@settings(max_examples=200)
@given(ANY_MARKS, SIZES)
@example([260] + [2] * 12 + [260], [1])
def test_word_pieces_with_a_leading_space_join_to_what_decoding_all_gives(ids, sizes):
    pieces, last = streamed(MARKS, split(ids, sizes))
    assert "".join(pieces) + last == decode(MARKS, ids)


def test_an_output_that_ends_inside_a_character_is_flushed_at_the_end():
    """Fault report 46 (dynamo PR#12688): two of the four bytes of an emoji."""
    ids = encode_raw(BYTES, "ok 🎉")[:-2]
    pieces, last = streamed(BYTES, [[token] for token in ids])
    assert "".join(pieces) == "ok "
    assert last == decode(BYTES, ids)[3:] == "\ufffd"


def test_a_character_is_given_with_its_last_byte_and_not_later():
    pieces, last = streamed(BYTES, [[token] for token in encode_raw(BYTES, "a🎉b")])
    assert pieces == ["a", "", "", "", "🎉", "b"]
    assert last == ""


def test_special_tokens_are_left_out_of_the_text():
    ids = [*encode_raw(BYTES, "hi"), tiny.VOCABULARY - 1]
    assert BYTES.decode(ids) == "hi<|im_end|>"
    pieces, last = streamed(BYTES, [[token] for token in ids])
    assert "".join(pieces) + last == "hi"


@pytest.mark.parametrize("text", ["word " * 200, "🎉" * 200, "你好" * 200])
def test_the_cost_of_a_token_does_not_grow_with_the_text(text, monkeypatch):
    longest = 0
    whole = decode

    def watched(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return whole(tokenizer, ids)

    monkeypatch.setattr(text_module, "decode", watched)
    stream = TextStream(BYTES)
    for token in encode_raw(BYTES, text):
        stream.push([token])
    assert longest <= 2 * LOOK_BEHIND + 4


def test_a_prompt_is_encoded_as_it_stands():
    assert BYTES.decode(encode_raw(BYTES, " <x>🎉\n")) == " <x>🎉\n"


@pytest.mark.parametrize("messages", [[5], ["hi"], [{"role": "user"}], [{"content": "x"}], [None]])
def test_a_message_without_role_and_content_is_refused(messages):
    with pytest.raises(InvalidRequest, match=r"needs 'role' and 'content', got"):
        encode_chat(BYTES, messages)


def test_a_model_without_a_template_says_so():
    with pytest.raises(InvalidRequest, match=r"no chat template; give a raw prompt"):
        encode_chat(PIECES, [{"role": "user", "content": "x"}])


def test_what_a_template_refuses_is_said_in_one_sentence():
    tokenizer = tiny.byte_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(InvalidRequest, match="refuses these messages: no system role"):
        encode_chat(tokenizer, [{"role": "system", "content": "x"}])
