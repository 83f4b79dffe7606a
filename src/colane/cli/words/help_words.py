"""What stands beside an option in its help: nothing beside a switch, a word of the field beside what takes a value."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

WORDS: Final = {
    "<bool>": "",
    "<int>": "NUMBER",
    "<int range>": "NUMBER",
    "<float>": "NUMBER",
    "<float range>": "NUMBER",
    "<path>": "PATH",
    "<str>": "TEXT",
}
"""By what Typer says, which are words of Python."""


class PlainGroup(TyperGroup):
    """A group of commands whose own options are told plainly."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own types
        """Write the help."""
        say_plainly(self, ctx)
        super().format_help(ctx, formatter)


def say_plainly(command: Any, ctx: Any) -> None:  # noqa: ANN401 - as above
    """Give the options of a command words for their values, where none were chosen; of arguments their names say it."""
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
        elif param.metavar is None:
            told = param.display_type(ctx)
            param.metavar = WORDS.get(told, told.strip("<>"))


def _nothing(ctx: Any) -> None:  # noqa: ANN401 - as above
    """What is said of an argument's type."""
