"""`colane policies`: the policies by name, and the short names of some with options."""

from __future__ import annotations

from typing import Final

import typer

from colane.cli import output
from colane.cli.formatting import Format, printed

COLUMNS: Final = (
    output.ScreenColumn("policy"),
    output.ScreenColumn("stands for", may_fold=True),
    output.ScreenColumn("decides by", may_fold=True),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("policies", epilog="Example: [bold]colane policies[/bold]")(policies)


def policies(as_json: output.Json = False, template: Format = None) -> None:
    """List the policies that come with Colane, each followed by the short names of it with options.

    Every name goes where a policy is named, alone or with options: `--policy srsf:quantum_s=30`.
    """
    from colane.scheduling.registry import ALIASES, POLICIES, SUMMARIES  # noqa: PLC0415 - imported late

    objects = [
        *({"policy": name, "stands_for": None, "summary": SUMMARIES[name]} for name in POLICIES),
        *({"policy": name, "stands_for": meant, "summary": None} for name, meant in ALIASES.items()),
    ]
    if printed(template, as_json, objects):
        return
    rows = []
    for name in POLICIES:
        rows.append((name, "", SUMMARIES[name]))
        rows += [(f"  {alias}", meant, "") for alias, meant in ALIASES.items() if meant.partition(":")[0] == name]
    output.print_table(COLUMNS, rows)
