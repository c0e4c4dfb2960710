"""Suite: prompt sets in a folder, JSON lines beside a manifest.

The folder holds `manifest.json` (set name -> {"file": ...}) and one JSONL file a set. An item has an `id`
and `messages`, `turns` (the first one is used) or `prompt_ids`. Spec-Bench is one file of several tasks:
its items get the set name ``spec_bench/<category>``, and asking for `spec_bench` means all of them.

Choosing N items of a set takes those whose ids have the smallest SHA-256: the choice looks random, is the
same everywhere, and a larger N contains a smaller one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase as Tokenizer

from echodraft.errors import InvalidRequest, did_you_mean
from echodraft.targets.huggingface.text import encode_chat, encode_raw

__all__ = ["Item", "Suite", "load_suite"]

MANIFEST = "manifest.json"
SPLIT_BY_CATEGORY = frozenset({"spec_bench"})


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt: either messages or ids."""

    id: str
    set: str
    messages: tuple[Mapping[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] = ()

    def encode(self, tokenizer: Tokenizer, *, raw: bool = False) -> list[int]:
        """Prompt ids: those given, the chat template, or (raw) the messages' text as it stands."""
        if self.prompt_ids:
            return list(self.prompt_ids)
        if raw:
            return encode_raw(tokenizer, "\n\n".join(str(m["content"]) for m in self.messages))
        return encode_chat(tokenizer, self.messages)


@dataclass(frozen=True, slots=True)
class Suite:
    """Chosen items, set by set in the manifest's order; sha256 of every file read, by its name."""

    items: tuple[Item, ...]
    sha256: Mapping[str, str]

    @property
    def sets(self) -> list[str]:
        """Set names in order."""
        return list(dict.fromkeys(item.set for item in self.items))


def load_suite(folder: Path, sets: SequenceOf[str] | None = None, max_prompts: int | None = None) -> Suite:
    """Read a suite.

    sets:        names to read (None: all; sets that the manifest marks `keep_out_of_commits` are then left
                 out where their file is not there).
    max_prompts: the most items per set; None for all.
    raises:      InvalidRequest for a missing manifest or file, an unknown set, a line that is no item.
    """
    if max_prompts is not None and max_prompts < 1:
        raise InvalidRequest(f"max_prompts must be at least 1, got {max_prompts}")
    manifest = _manifest(folder)
    wanted = _wanted(manifest, sets)
    found: dict[str, list[Item]] = {}
    sha256: dict[str, str] = {}
    for name in manifest:
        asked = sets is None or any(_base(one) == name for one in wanted)
        if not asked:
            continue
        path = folder / str(manifest[name]["file"])
        if not path.is_file():
            if sets is None and manifest[name].get("keep_out_of_commits"):
                continue
            raise InvalidRequest(
                f"the set {name!r} has no file {manifest[name]['file']!r} in the suite's folder; "
                "fetch it, or name the sets to run"
            )
        content = path.read_bytes()
        sha256[str(manifest[name]["file"])] = hashlib.sha256(content).hexdigest()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{path.name} is not UTF-8 ({error.reason}); save it as UTF-8") from None
        # Not splitlines: a string in JSON may hold line separators of Unicode.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                item = _item(line, name, f"{path.name}:{number}")
                found.setdefault(item.set, []).append(item)
    if sets is not None:
        found = {name: items for name, items in found.items() if name in wanted or _base(name) in wanted}
        for name in wanted:
            if not any(name in (one, _base(one)) for one in found):
                known = ", ".join(one for one in found) or "none"
                raise InvalidRequest(f"the suite has no set {name!r}; in its file are: {known}")
    items = [item for group in found.values() for item in sorted(group, key=_rank)[:max_prompts]]
    if not items:
        raise InvalidRequest("the suite has no items; see its manifest.json")
    return Suite(tuple(items), sha256)


def _rank(item: Item) -> str:
    return hashlib.sha256(item.id.encode("utf-8")).hexdigest()


def _base(name: str) -> str:
    return name.partition("/")[0]


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / MANIFEST
    if not path.is_file():
        raise InvalidRequest(
            f"no {MANIFEST} in the suite's folder {folder}; it lists the sets and their files"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidRequest(f"{path} is no JSON: {error}") from None
    if not isinstance(manifest, dict) or not all(
        isinstance(entry, dict) and isinstance(entry.get("file"), str) for entry in manifest.values()
    ):
        raise InvalidRequest(f'{path} must map set names to objects with a "file"')
    return manifest


def _wanted(manifest: Mapping[str, Any], sets: SequenceOf[str] | None) -> list[str]:
    for name in sets or ():
        if _base(name) not in manifest or ("/" in name and _base(name) not in SPLIT_BY_CATEGORY):
            hint = did_you_mean(name, manifest)
            raise InvalidRequest(f"the suite has no set {name!r}{hint}; known: {', '.join(manifest)}")
    return list(sets or ())


def _item(line: str, name: str, where: str) -> Item:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"{where} is no JSON: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        raise InvalidRequest(f'{where} is no item: it needs an "id"')
    if name in SPLIT_BY_CATEGORY:
        name = f"{name}/{entry.get('category', 'other')}"
    if ids := entry.get("prompt_ids"):
        return Item(entry["id"], name, prompt_ids=tuple(int(token) for token in ids))
    if messages := entry.get("messages"):
        return Item(entry["id"], name, messages=tuple(messages))
    if turns := entry.get("turns"):
        return Item(entry["id"], name, messages=({"role": "user", "content": turns[0]},))
    raise InvalidRequest(f'{where} is no item: it needs "messages", "turns" or "prompt_ids"')
