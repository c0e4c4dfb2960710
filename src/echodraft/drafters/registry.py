"""Registry: the drafters by name, and their options from text, mappings or configs.

A drafter becomes known everywhere (library, command line, benchmark, documentation) by its one line in
`DRAFTERS`. Options are the fields of its config; those of a config inside a config are written with a
dot: ``srsd.branches``. Everything a user may get wrong here is an error before a model is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from echodraft.decoding.calibration import AcceptanceTable
from echodraft.decoding.interfaces import TargetInfo
from echodraft.drafters.auto import AutoDrafter
from echodraft.drafters.base import BaseDrafter, DraftContext
from echodraft.drafters.none import NoDrafter
from echodraft.drafters.prompt_lookup import PromptLookupDrafter
from echodraft.drafters.srsd import SRSDDrafter
from echodraft.drafters.suffix_automaton import SuffixAutomatonDrafter
from echodraft.drafters.token_recycling import TokenRecyclingDrafter
from echodraft.errors import InvalidRequest, UnknownDrafter, did_you_mean

__all__ = ["DRAFTERS", "build", "configure", "describe", "parse_options"]

DRAFTERS: dict[str, type[BaseDrafter[Any]]] = {
    "auto": AutoDrafter,
    "srsd": SRSDDrafter,
    "suffix_automaton": SuffixAutomatonDrafter,
    "token_recycling": TokenRecyclingDrafter,
    "prompt_lookup": PromptLookupDrafter,
    "none": NoDrafter,
}


def build(name: str, context: DraftContext, options: Any = None) -> BaseDrafter[Any]:
    """A drafter for one sequence.

    options: a config of this drafter, a mapping as for `configure`, or None for the defaults.
    raises:  UnknownDrafter, InvalidRequest as `configure` does.
    """
    config = options if dataclasses.is_dataclass(options) else configure(name, options or {})
    drafter = _drafter(name)
    if not isinstance(config, drafter.Config):
        raise InvalidRequest(
            f"drafter {name!r} takes a {drafter.Config.__name__}, got a {type(config).__name__}"
        )
    return drafter(config, context)


def configure(name: str, options: Mapping[str, object]) -> Any:
    """The config of drafter `name` with these options set, all checked.

    options: option -> value; those of an inner config with dotted names or as a mapping of their own.
    raises:  UnknownDrafter for an unknown drafter or option, InvalidRequest for a wrong value.
    """
    return _configure(_drafter(name).Config, options, name, "")


def parse_options(name: str, texts: Iterable[str]) -> Any:
    """The config of drafter `name` from ``key=value`` texts, as the command line has them."""
    types = {key: kind for key, kind, _ in _options(_drafter(name).Config)}
    options: dict[str, object] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InvalidRequest(f"a drafter option is written key=value, got {text!r}")
        options[key] = _parsed(key, value, types[key]) if key in types else value
    return configure(name, options)


def describe() -> list[dict[str, Any]]:
    """What there is to know of every drafter, as plain JSON types; documentation is made of it."""
    return [
        {
            "name": name,
            "summary": (drafter.__doc__ or "").splitlines()[0],
            "reference": drafter.reference,
            "needs": _needs(drafter),
            "options": [
                {
                    "name": key,
                    "type": kind.__name__,
                    "default": field.default,
                    "help": field.metadata.get("help", ""),
                }
                for key, kind, field in _options(drafter.Config)
            ],
        }
        for name, drafter in DRAFTERS.items()
    ]


def _drafter(name: str) -> type[BaseDrafter[Any]]:
    if name not in DRAFTERS:
        raise UnknownDrafter(
            f"no drafter {name!r}{did_you_mean(name, DRAFTERS)}; known: {', '.join(DRAFTERS)}"
        )
    return DRAFTERS[name]


def _configure(config: type[Any], options: Mapping[str, object], drafter: str, prefix: str) -> Any:
    types = _types(config)
    own: dict[str, object] = {}
    inner: dict[str, dict[str, object]] = {}
    for key, value in options.items():
        head, dot, rest = str(key).partition(".")
        kind = types.get(head)
        nested = dataclasses.is_dataclass(kind)
        if kind is None or bool(dot) > nested:
            raise _unknown_option(prefix + str(key), drafter)
        if dot:
            inner.setdefault(head, {})[rest] = value
        elif nested and isinstance(value, Mapping):
            inner.setdefault(head, {}).update(value)
        elif nested and not isinstance(value, kind):
            inside = ", ".join(f"{prefix}{head}.{name}" for name in _types(kind))
            raise InvalidRequest(f"option {prefix}{head} has options of its own, set one of them: {inside}")
        elif not _fits(value, kind):
            raise InvalidRequest(f"option {prefix}{head} must be {_a(kind)}, got {value!r}")
        else:
            own[head] = value
    for head, values in inner.items():
        own[head] = _configure(types[head], values, drafter, f"{prefix}{head}.")
    try:
        return config(**own)
    except InvalidRequest as error:
        raise InvalidRequest(f"option {prefix}{error}") from None


def _unknown_option(key: str, drafter: str) -> UnknownDrafter:
    known = [name for name, _, _ in _options(DRAFTERS[drafter].Config)]
    valid = f"it has: {', '.join(known)}" if known else "it has none"
    return UnknownDrafter(f"drafter {drafter!r} has no option {key!r}{did_you_mean(key, known)}; {valid}")


def _types(config: type[Any]) -> dict[str, type[Any]]:
    hints = get_type_hints(config)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def _options(config: type[Any], prefix: str = "") -> list[tuple[str, type[Any], dataclasses.Field[Any]]]:
    """(dotted name, type, field) of every option, inner configs spread out."""
    options = []
    types = _types(config)
    for field in dataclasses.fields(config):
        kind = types[field.name]
        if dataclasses.is_dataclass(kind):
            options += _options(kind, f"{prefix}{field.name}.")
        else:
            options.append((prefix + field.name, kind, field))
    return options


def _parsed(key: str, text: str, kind: type[Any]) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidRequest(f"option {key} must be true or false, got {text!r}")
        return text.lower() == "true"
    try:
        value: object = kind(text)
    except ValueError:
        raise InvalidRequest(f"option {key} must be {_a(kind)}, got {text!r}") from None
    return value


def _fits(value: object, kind: type[Any]) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _a(kind: type[Any]) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words[kind]


def _needs(drafter: type[BaseDrafter[Any]]) -> str:
    """In words; layers as a share of the depth, read off a nominal target of a hundred."""
    info = TargetInfo("nominal", 1, 1, 100, 1, frozenset(), "nominal")
    needs = drafter(drafter.Config(), DraftContext(info, AcceptanceTable())).needs
    parts = []
    if needs.layers:
        shares = " and ".join(f"{(layer + 1) / 100:g}" for layer in sorted(needs.layers))
        parts.append(f"hidden states at {shares} of the depth")
    if needs.prompt_logits:
        parts.append(f"logits of up to {needs.prompt_logits} prompt positions")
    return ", ".join(parts) or "tokens only"
