"""Settings of a policy as text: `pack:share_when=always,max_wait_s=none`.

Every field of a policy and of its parts may be set so. Its name becomes the whole text, so that records and reports
tell variants apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from math import inf, isfinite
from types import MappingProxyType, NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from colane.model.placement import TurnRule, Turns
from colane.scheduling.engine.user_weights import UserWeights, read_weights

WORDS: Mapping[str, bool] = MappingProxyType({"yes": True, "true": True, "no": False, "false": False})

PARTS = frozenset({"sources", "admits", "ways", "moving", "usage", "chooser", "keeps", "protects", "is_as_published"})
"""Fields that hold parts, or none: no option themselves."""

RANGES: Mapping[str, tuple[float, float]] = MappingProxyType({
    "displaces_min": (1, inf), "keeps_min": (1, inf), "rho_gain_min": (1, inf), "speed_gain_min": (1, inf),
    "jobs_per_gpu_max": (1, 48),
    "gpus_power": (0, 8),
})  # fmt: skip
"""Least and most of options that are not any number from 0 up.

Of how many times better something else must be, as below 1 jobs would change places for ever; of jobs on a GPU as MPS
has 48 clients.
"""

RENAMED: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "gain_min": ("displaces_min",),
    "rise_min": ("rise_steps_per_s_min",),
})  # fmt: skip
"""Options by names they had, where these meant several things."""

T = TypeVar("T")

TEXTS = tuple[str, ...]  # written with `/` between them: `fifo:gpu_types=v100/p100`

NUMBERS = tuple[float, ...]  # written likewise: `las:queues_gpu_s=3600/36000`


class PolicyOptionError(ValueError):
    """A policy has no such option, or not with that value; the message names both."""


def configured(policy: T, text: str) -> T:
    """The policy with the options of `name:option=value,...`.

    Raises PolicyOptionError: there is no such option, its value is none it can have, or it is said twice.
    """
    base, _, options = text.partition(":")
    kinds = _kinds(policy)
    values: dict[str, object] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        name, _, value = option.partition("=")
        if name not in kinds:
            raise PolicyOptionError(_unknown(base, name, kinds))
        if name in values:
            raise PolicyOptionError(f"policy: {base}: {name} is said twice; say it once")
        values[name] = found = _read(base, name, value, kinds[name])
        least, most = RANGES.get(name, (0.0, inf))
        if isinstance(found, (int, float)) and not isinstance(found, bool) and not least <= found <= most:
            to = "up" if most == inf else f"to {most:g}"
            raise PolicyOptionError(f"policy: {base}: {name} must be a number from {least:g} {to}, got {value!r}")
    return replace(with_options(policy, values), name=text)  # type: ignore[type-var]


def with_options(policy: T, values: Mapping[str, object]) -> T:
    """The policy with these values in all of its parts that have fields of these names."""
    changes: dict[str, object] = {}
    for field in _fields(policy):
        value = getattr(policy, field.name)
        if field.name in values:
            changes[field.name] = values[field.name]
        elif _is_part(value):
            changes[field.name] = with_options(value, values)
        elif isinstance(value, tuple) and all(map(_is_part, value)):
            changes[field.name] = tuple([with_options(part, values) for part in value])
    return replace(policy, **changes) if changes else policy  # type: ignore[type-var]


def _is_part(value: object) -> bool:
    """Whether it is a part with options of its own; how lanes take turns, a named tuple, is one option."""
    return is_dataclass(value)


def _fields(part: object) -> list[Field[Any]]:
    if not is_dataclass(part):
        return []
    return [field for field in fields(part) if field.init and field.name != "name"]


def _kinds(policy: object) -> dict[str, Any]:
    """Options of a policy and of its parts, with their types."""
    kinds: dict[str, Any] = {}
    hints = get_type_hints(type(policy)) if is_dataclass(policy) else {}
    for field in _fields(policy):
        value = getattr(policy, field.name)
        if _is_part(value):
            kinds.update(_kinds(value))
        elif isinstance(value, tuple) and value and all(map(_is_part, value)):
            for part in value:
                kinds.update(_kinds(part))
        elif field.name not in PARTS:
            kinds[field.name] = _kind(hints[field.name], field.default)
    return kinds


def _kind(hint: Any, default: object) -> Any:  # noqa: ANN401 - what hints are
    """What a field holds. Compiled classes keep less: of a tuple not of what, of `X | None` and some classes `type`.

    An option that is None unless it is given is a number.
    """
    if hint is tuple:
        return NUMBERS if isinstance(default, tuple) and default and isinstance(default[0], float) else TEXTS
    if hint is not type:
        return hint
    if default is None:
        return float | None
    return type(default) | None if isinstance(default, (int, float)) else type(default)


def _unknown(base: str, name: str, kinds: Mapping[str, Any]) -> str:
    near = [new for new in RENAMED.get(name, ()) if new in kinds] or get_close_matches(name, kinds, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    known = f"it has {', '.join(sorted(kinds))}" if kinds else "it has none"
    return f"policy: {base} has no option {name!r}; {hint}{known}"


def _read(base: str, name: str, value: str, kind: object) -> object:
    choices = (kind,) if kind in (TEXTS, NUMBERS) else get_args(kind) or (kind,)
    if NoneType in choices and value == "none":
        return None
    for choice in choices:
        found = _value(value, choice)
        if found is not None:
            return found
    raise PolicyOptionError(f"policy: {base}: {name} must be {_wanted(choices)}, got {value!r}")


def _value(value: str, kind: object) -> object | None:
    """The value as one of its kinds, None where it is not of it."""
    if kind is bool:
        return WORDS.get(value.lower())
    if kind is Turns or kind is UserWeights:
        return _turns(value) if kind is Turns else read_weights(value)
    if kind == TEXTS:
        return tuple(filter(None, value.split("/"))) or None
    if kind == NUMBERS:
        numbers = [_number(part, float) for part in value.split("/")]
        return None if None in numbers else tuple(numbers)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return next((member for member in kind if member.value == value), None)
    return _number(value, kind)


def _number(value: str, kind: object) -> float | int | None:
    if kind not in (int, float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not isfinite(number) or number < 0 or (kind is int and number != int(number)):
        return None
    return int(number) if kind is int else number


def _turns(value: str) -> Turns | None:
    """`fair`, or `fair@0.05` for turns of at least 0.05 s."""
    rule, at, quantum = value.partition("@")
    quantum_s = _number(quantum, float)
    if rule not in set(TurnRule) or (at and quantum_s is None):
        return None
    return Turns(rule=TurnRule(rule), quantum_s=quantum_s)


def _wanted(choices: tuple[object, ...]) -> str:
    words: list[str] = []
    for choice in choices:
        if choice is NoneType:
            words.append("none")
        elif choice is bool:
            words.append("yes or no")
        elif choice == TEXTS:
            words.append("words with / between them")
        elif choice == NUMBERS:
            words.append("numbers from 0 up with / between them")
        elif choice is UserWeights:
            words.append("users with their weights, as ann=2/bob=0.5")
        elif choice is Turns:
            words.append(f"one of {', '.join(TurnRule)}, with @SECONDS for longer turns")
        elif isinstance(choice, type) and issubclass(choice, StrEnum):
            words.append(f"one of {', '.join(choice)}")
        else:
            words.append("a number from 0 up")
    return " or ".join(dict.fromkeys(words))
