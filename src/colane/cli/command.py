"""How a command reads its words: what the parser would take for something else is refused before anything is done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand

from colane.cli.errors import FAILED_AT_SERVER, MisuseError, one_line
from colane.cli.words.help_words import say_plainly
from colane.cli.words.other_words import meant_by, meant_option
from colane.client.errors import Refused
from colane.client.typed_fields import as_typed, options_of
from colane.model.nearest import nearest

# -- What is said of a command line typed wrong: one line that names what, what was meant, and where to read on.

_NO_COMMAND: Final = re.compile(r"No such command '(?P<name>[^']+)'")
_NOT_ONE_OF: Final = re.compile(r"'(?P<typed>[^']*)' is not one of (?P<choices>'.*')\.")

NOISE: Final = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be ": "must be ",
}
"""How the library that checks values complains of them, and our words for it."""


def complaint(error: typer.TyperException, nouns: Iterable[str] = ()) -> str:
    """Return the message, and for a wrong command line where to read on; `nouns` are words that may follow `colane`."""
    said, context = error.format_message(), getattr(error, "ctx", None)
    if (match := _NO_COMMAND.match(said)) is not None and context is not None:
        above = f"use colane {match['name']}" if match["name"] in nouns else None
        elsewhere = above if context.parent else meant_by(match["name"])
        said = f"No such command '{match['name']}'; {elsewhere or _nearest(match['name'], context.command.commands)}"
        if elsewhere:
            return said
        said = said.removesuffix("; ")
    elif hasattr(error, "possibilities") and context is not None:
        typed = str(getattr(error, "option_name", ""))
        names = [name for param in context.command.params for name in (*param.opts, *param.secondary_opts)]
        known = [name for name in (*names, "--help", "-h") if name.startswith("--") or len(typed) == 2]
        said = f"No such option: {typed}; {meant_option(typed, known, context.command.name)}".removesuffix("; ")
    for noise, plain in NOISE.items():
        said = said.replace(noise, plain)
    said = _NOT_ONE_OF.sub(_with_nearest, said)
    return f"{said} (see {context.command_path} --help)" if context is not None and said else said


def _nearest(typed: str, names: Iterable[str]) -> str:
    near = " or ".join(nearest(typed, names))
    return f"did you mean {near}?" if near else ""


def _with_nearest(match: re.Match[str]) -> str:
    choices = match["choices"].replace("'", "").split(", ")
    said = f"must be {_either(choices)}, got '{match['typed']}'; {_nearest(match['typed'], choices)}"
    return said.removesuffix("; ")


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


LONG_DASHES: Final = ("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}")
"""What word processors and web pages make of one or two dashes."""


class StrictCommand(TyperCommand):
    """A command that refuses `-gpus 2` (one dash: G, then `pus`), `--name --gpus` (a name?) and typographic dashes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own types
        """Write the help."""
        say_plainly(self, ctx)
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own type
        """Read the words of a command line.

        Raises MisuseError: one of them would be taken for something else than was meant.
        """
        is_mixed = self.allow_interspersed_args
        options: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        told = {
            name: not (option.is_flag or option.count)
            for option in options
            for name in (*option.opts, *option.secondary_opts)
        }
        said = misread(args, {**told, "--help": False, "-h": False}, self.name or "", is_mixed=is_mixed)
        if said:
            raise MisuseError(f"{said} (see {ctx.command_path} --help)")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own types
        """Do what it is for. Raises MisuseError: the scheduler refuses; it names options in place of fields."""
        try:
            return super().invoke(ctx)
        except Refused as refused:
            if refused.status >= FAILED_AT_SERVER:
                raise
            options = options_of(self.params)
            said = [as_typed(*one, options) if one.field else one.message for one in refused.problems]
            raise MisuseError("; ".join(map(one_line, said))) from refused


def misread(words: Sequence[str], awaiting: Mapping[str, bool], command: str, *, is_mixed: bool) -> str:
    """Return what to say of the first word that the parser would misread; empty if none.

    Args:
        words: The words behind the command's name.
        awaiting: Whether each option awaits a value, by its names.
        command: Name of the command.
        is_mixed: Whether options may stand behind other words.
    """
    rest = list(words)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if said := _misread_alone(word, awaiting, command):
            return said
        if not word.startswith("-") and not is_mixed:
            return ""
        if rest and _awaits(word, awaiting) and (value := rest.pop(0)) in awaiting:
            return f"Option '{word}' requires an argument, and {value} is an option"
    return ""


def _misread_alone(word: str, awaiting: Mapping[str, bool], command: str) -> str:
    """Return what is wrong with one word, whatever follows."""
    known = [name for name in awaiting if name.startswith("--")]
    if word.startswith(LONG_DASHES):
        meant = meant_option(f"--{word.lstrip(''.join((*LONG_DASHES, '-')))}", known, command)
        return f"{word} begins with a typographic dash; {meant or 'options begin with two plain ones'}"
    name = word.partition("=")[0]
    if word.startswith("--") or not word.startswith("-") or len(name) <= 2:
        return ""
    if f"-{name}" not in known and not _unknown_letter(word, awaiting):
        return ""
    meant = meant_option(f"-{name}", known, command)
    return f"No such option: {name}; {meant}" if meant else ""


def _unknown_letter(word: str, awaiting: Mapping[str, bool]) -> bool:
    """Whether `-abc` has a letter that is no option, before one that takes the rest for its value."""
    for letter in word[1:]:
        if f"-{letter}" not in awaiting:
            return True
        if awaiting[f"-{letter}"]:
            return False
    return False


def _awaits(word: str, awaiting: Mapping[str, bool]) -> bool:
    """Whether the next word is this option's value."""
    if word.startswith("--"):
        return awaiting.get(word, False)
    letters = [awaiting.get(f"-{letter}", False) for letter in word[1:]] if word.startswith("-") else []
    return any(letters) and letters.index(True) == len(letters) - 1
