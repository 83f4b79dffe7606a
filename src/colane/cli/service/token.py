"""`colane token`: what lets users and agents in from other machines."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn


class TokenRole(StrEnum):
    """What the holder of a user's token may."""

    USER = "user"
    OPERATOR = "operator"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    example = "Example: [bold]colane token make --node gpu-7 --out gpu-7.token[/bold]"
    group = typer.Typer(no_args_is_help=True, help="Make and revoke tokens of users and agents.", epilog=example)
    group.command("make", epilog=example)(make)
    group.command("list", epilog="Example: [bold]colane token list --json[/bold]")(list_tokens)
    group.command("revoke", epilog="Example: [bold]colane token revoke 3f2a90c1d4e5[/bold]")(revoke)
    app.add_typer(group, name="token")


def make(
    user: Annotated[str | None, typer.Option("--user", show_default="you", help="The user it stands for.")] = None,
    role: Annotated[
        TokenRole | None, typer.Option("--role", show_default="user", help="What its holder may: an operator all.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Make the token of the agent of this node instead.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", show_default="standard output", help="New file for the token."),
    ] = None,
) -> None:
    """Make a token, for COLANE_TOKEN or COLANE_TOKEN_FILE on another machine.

    It is shown this once: the scheduler keeps only a digest of it. On the scheduler's own machine users need none.
    """
    if node is not None and (user is not None or role is not None):
        raise MisuseError("--node: an agent's token has neither --user nor --role")
    file = None if out is None else _new_file(out)
    try:
        with jobs.client() as scheduler:
            token = scheduler.make_token(user=user, node=node, role=None if role is None else role.value)
    except BaseException:
        if file is not None and out is not None:
            os.close(file)
            out.unlink()
        raise
    if file is None:
        sys.stdout.write(f"{token}\n")
        return
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(f"{token}\n")


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise MisuseError(f"--out {path}: is there already; name a new file") from error
    except OSError as error:
        raise FailureError(f"--out {path}: {error.strerror}") from error


def list_tokens(as_json: output.Json = False, template: Format = None) -> None:
    """List tokens, yours or (for an operator) all: which users or nodes they stand for, and when they were made."""
    with jobs.client() as scheduler:
        known = scheduler.tokens()
    if printed(template, as_json, known):
        return
    columns = [ScreenColumn(heading) for heading in ("ID", "ROLE", "NAME", "MADE", "BY")]
    days = [time.strftime("%Y-%m-%d", time.localtime(one["made_s"])) for one in known]
    rows = [[one["id"], one["role"], one["name"], day, one["made_by"]] for one, day in zip(known, days, strict=True)]
    output.print_table(columns, rows)


def revoke(token: Annotated[str, typer.Argument(metavar="ID", help="As colane token list shows it.")]) -> None:
    """Let a token count no longer, from the next request on."""
    with jobs.client() as scheduler:
        scheduler.revoke_token(token)
    output.say(f"token {token} is revoked")
