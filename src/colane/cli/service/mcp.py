"""`colane mcp`: what an assistant may ask and do, over the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from colane.cli.errors import FailureError
from colane.cli.jobs import objects as jobs
from colane.client.errors import SchedulerError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("mcp", epilog="Example: [bold]claude mcp add colane -- colane mcp[/bold]")(mcp)


def mcp() -> None:
    """Serve an assistant over the Model Context Protocol (MCP), on standard input and output.

    It may look at jobs, logs and nodes, and plan. It submits and changes only what it has planned in the same session,
    as the user who runs this command, and the story of each job says so. An assistant's program starts this command;
    by hand it waits for messages until its input ends.
    """
    try:
        from colane.integrations.mcp_server import make_server  # noqa: PLC0415 - of an extra
    except ImportError as error:
        needs = "colane mcp needs a package that is not here: pip install 'colane[mcp]'"
        raise FailureError(f"{needs} ({error})") from error
    from colane.client.client import Client  # noqa: PLC0415 - imported late
    from colane.integrations.assistant import THROUGH, AssistantError, AssistantSession  # noqa: PLC0415 - as above

    scheduler = Client(through=THROUGH)

    def id_of(name: str) -> int:
        try:
            return jobs.id_of(scheduler, jobs.parse_job_name(str(name)))
        except typer.TyperException as error:
            raise AssistantError(error.format_message()) from error

    def complete(said: Mapping[str, Any]) -> dict[str, Any]:
        from colane.cli.submit.command import requests_of  # noqa: PLC0415 - as above
        from colane.cli.submit.jobfile import JobFile  # noqa: PLC0415

        try:
            return requests_of(JobFile(Path(), [dict(said)]), {})[0]
        except typer.TyperException as error:
            raise AssistantError(error.format_message()) from error

    with scheduler:
        try:
            make_server(AssistantSession(scheduler, complete, id_of)).run("stdio")
        except SchedulerError as error:
            raise FailureError(str(error)) from error
        finally:  # the protocol's library closes ours, which is flushed at the end of every command
            sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
