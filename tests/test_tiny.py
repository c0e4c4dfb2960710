"""The tiny models and tokenizers do what the tests rely on."""

from __future__ import annotations

import pytest

from tests import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["plain", "naïve café", "你好，世界", "👩‍👩‍👧 ok 🎉", "e\u0301", "  leading\n\ttabs ", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_byte_tokenizer_round_trips_any_text(text, byte_tokenizer):
    assert byte_tokenizer.decode(byte_tokenizer(text)["input_ids"]) == text


def test_byte_tokenizer_has_the_size_of_the_models(byte_tokenizer):
    assert len(byte_tokenizer) == tiny.VOCABULARY


def test_saved_folder_has_model_tokenizer_and_template(tiny_model_folder):
    names = {path.name for path in tiny_model_folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def test_chat_template_ends_with_the_assistants_turn(byte_tokenizer):
    messages = [{"role": "user", "content": "hi"}]
    text = byte_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
