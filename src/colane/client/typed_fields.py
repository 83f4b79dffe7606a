"""What the scheduler says of a field of a request, as it was typed: `--deadline` for `deadline_s`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_FIELD: Final = re.compile(r"(?:jobs\[0\]\.?)?(?P<name>\w+)(?P<rest>.*)")
_WORD: Final = re.compile(r"(?<![\w'\"=.-])[a-z]+(?:_[a-z]+)+(?![\w'\"=(])")
UNITS: Final = ("_s", "_bytes", "_bytes_per_s")  # what a field has behind the name of its option


def as_typed(field: str, message: str, options: Mapping[str, str]) -> str:
    """Return a complaint about a field as one about the option that stands for it.

    Args:
        field: As the scheduler names it, `jobs[0].labels.notify`; one without an option stays as it is.
        message: What is wrong; other fields in it are named by their options, too.
        options: Names of fields, whole or up to their first dot, each with its option.
    """
    found = _FIELD.fullmatch(field)
    name, rest = (found["name"], found["rest"]) if found else (field, "")
    whole = f"{name}{rest}"
    said = options.get(whole) or (f"{options[name]}{rest}" if name in options else whole)
    return f"{said}: {_WORD.sub(lambda word: options.get(word[0], word[0]), message)}"


def options_of(params: Sequence[Any]) -> dict[str, str]:
    """Return the options of a command by the fields that they stand for, with their unit and without."""
    named = {param.name: param.opts for param in params if param.param_type_name == "option"}
    known = {name: next((word for word in words if word.startswith("--")), words[0]) for name, words in named.items()}
    return {f"{name}{unit}": option for name, option in known.items() for unit in ("", *UNITS)}
