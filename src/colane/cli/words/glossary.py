"""`colane glossary`: what the words mean that commands and reports use."""

from __future__ import annotations

from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("glossary", epilog="Example: [bold]colane glossary lane[/bold]")(glossary)


def glossary(
    word: Annotated[str | None, typer.Argument(metavar="[WORD]", show_default=False, help="This word only.")] = None,
    as_json: output.Json = False,
) -> None:
    """Say what the words mean that commands and reports use: lane, family, run span and others."""
    from colane.model.glossary import WORDS  # noqa: PLC0415 - imported late

    asked = (word or "").lower()
    found = {name: said for name, said in WORDS.items() if asked in name.lower() or asked in said.lower()}
    exact = {name: said for name, said in found.items() if asked == name.lower()}
    if not found:
        raise MisuseError(f"glossary: {word!r} is not in it; colane glossary lists all words")
    shown = exact or found
    if as_json:
        output.print_json(shown)
        return
    output.print_fields(shown.items())
