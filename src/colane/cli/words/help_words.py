"""What stands beside an option in its help: nothing beside a switch, a word of the field beside what takes a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import RenderableType

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
    _fold_long_words()
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
        elif param.metavar is None:
            told = param.display_type(ctx)
            param.metavar = WORDS.get(told, told.strip("<>"))


def _nothing(ctx: Any) -> None:  # noqa: ANN401 - as above
    """What is said of an argument's type."""


def _fold_long_words() -> None:
    """Let a word that is longer than its column, as the path of a page, go on in the next line: it was cut off."""
    from rich.columns import Columns  # noqa: PLC0415 - for help alone
    from rich.text import Text  # noqa: PLC0415 - as above
    from typer import rich_utils  # noqa: PLC0415 - as above

    class FoldingColumns(Columns):
        def __init__(self, parts: Sequence[RenderableType]) -> None:
            for part in parts:
                if isinstance(part, Text):
                    part.overflow = "fold"
            super().__init__(parts)

    vars(rich_utils)["Columns"] = FoldingColumns
