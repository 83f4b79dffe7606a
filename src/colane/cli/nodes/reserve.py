"""`colane reserve`: keep nodes for some users for a time; list and cancel that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn

if TYPE_CHECKING:
    from colane.api.nodes import NodeObject

COLUMNS = tuple(ScreenColumn(name) for name in ("RESERVATION", "NODES", "USERS", "FROM", "TO", "BY"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "colane reserve --nodes gpu[1-2] --from 18:00 --to 20:00 --users ann,bob"
    app.command("reserve", epilog=f"Example: [bold]{example.replace('[', chr(92) + '[')}[/bold]")(reserve)


def reserve(
    nodes: Annotated[str, typer.Option("--nodes", help="Nodes, as n1,n[3-5].", show_default=False)] = "",
    start: Annotated[str, typer.Option("--from", help="When it begins: 18:00, tomorrow, now+2h, a date.")] = "now",
    end: Annotated[str, typer.Option("--to", help="When it ends, as --from.", show_default=False)] = "",
    users: Annotated[str, typer.Option("--users", help="Whose jobs may use them.", show_default=False)] = "",
    name: Annotated[str | None, typer.Option("--name", help="Its name; else of the first user, and a number.")] = None,
    ignore_jobs: Annotated[
        bool, typer.Option("--ignore-jobs", help="Also where jobs of others run that may not have ended: they go on.")
    ] = False,
    cancel: Annotated[str, typer.Option("--cancel", metavar="NAME", help="End this one.", show_default=False)] = "",
    as_json: output.Json = False,
) -> None:
    """Keep nodes for jobs of some users for a time; without options, list such reservations.

    Jobs of others that might not have ended before, by their time limits, do not start there, and wait or start
    elsewhere (colane why); those of the users may start there at any time. Operators reserve and cancel.
    """
    asked = {"--nodes": nodes, "--to": end, "--users": users}
    if cancel and any(asked.values()):
        raise MisuseError("--cancel NAME goes alone")
    with jobs.client() as scheduler:
        if any(asked.values()):
            if missing := [option for option, said in asked.items() if not said]:
                raise MisuseError(f"{missing[0]} is missing: say --nodes, --to and --users")
            people = [user.strip() for user in users.split(",") if user.strip()]
            said = {"nodes": nodes, "from": start, "to": end, "users": people, "name": name}
            found = [scheduler.reserve(**said, ignore_jobs=ignore_jobs)]
        elif cancel:
            scheduler.unreserve(cancel)
            output.say(f"reservation {cancel} is cancelled")
            return
        else:
            found = scheduler.reservations()
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        COLUMNS,
        [
            [
                one["name"],
                ",".join(one["nodes"]),
                ",".join(one["users"]),
                _at(one["from_s"]),
                _at(one["to_s"]),
                one["by"],
            ]
            for one in found
        ],
    )


def _at(moment_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment_s))


def kept_texts(node: NodeObject) -> list[str]:
    """Return for which users a node is kept, from when to when; an older scheduler does not tell."""
    left = [one for one in node.get("reservations") or () if one["to_s"] > time.time()]
    return [
        f"kept from {_at(one['from_s'])} to {_at(one['to_s'])} for jobs of {', '.join(one['users'])} ({one['name']})"
        for one in left
    ]
