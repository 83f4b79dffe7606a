"""What is said of a command line typed wrong: one line that names what, what was meant, and where to read on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import typer

from colane.cli.words.other_words import meant_by, meant_option
from colane.model.nearest import nearest

_NO_COMMAND: Final = re.compile(r"No such command '(?P<name>[^']+)'")
_NOT_ONE_OF: Final = re.compile(r"'(?P<typed>[^']*)' is not one of (?P<choices>'.*')\.")

NOISE: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be ": "must be ",
}
"""How the library that checks values complains of them, and our words for it."""


def complaint(error: typer.TyperException) -> str:
    """Return the message, and for a wrong command line where to read on."""
    said, context = error.format_message(), getattr(error, "ctx", None)
    if (match := _NO_COMMAND.match(said)) is not None and context is not None:
        elsewhere = None if context.parent else meant_by(match["name"])
        said = f"No such command '{match['name']}'; {elsewhere or _nearest(match['name'], context.command.commands)}"
        if elsewhere:
            return said
        said = said.removesuffix("; ")
    elif hasattr(error, "possibilities") and context is not None:
        said = _of_option(str(getattr(error, "option_name", "")), context.command)
    for noise, plain in NOISE.items():
        said = said.replace(noise, plain)
    said = _NOT_ONE_OF.sub(_with_nearest, said)
    return f"{said} (see {context.command_path} --help)" if context is not None and said else said


def _nearest(typed: str, names: Iterable[str]) -> str:
    near = " or ".join(nearest(typed, names))
    return f"did you mean {near}?" if near else ""


def _of_option(typed: str, command: Any) -> str:  # noqa: ANN401 - typer's own type
    names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
    known = [name for name in (*names, "--help", "-h") if name.startswith("--") or len(typed) == 2]
    return f"No such option: {typed}; {meant_option(typed, known, command.name)}".removesuffix("; ")


def _with_nearest(match: re.Match[str]) -> str:
    choices = match["choices"].replace("'", "").split(", ")
    said = f"must be {_either(choices)}, got '{match['typed']}'; {_nearest(match['typed'], choices)}"
    return said.removesuffix("; ")


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
