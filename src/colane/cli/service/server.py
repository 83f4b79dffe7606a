"""`colane server`: the scheduler alone."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import ServiceStart, log_to_stderr, service_command, state_dir, token_of
from colane.settings.table import AGENTS, SERVER

HandOver = Annotated[
    bool,
    typer.Option(
        "--hand-over",
        help="Start nothing: let the scheduler that leads end, and a standby of COLANE_URL lead in its place.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    others = {"hand_over": (HandOver, False)}
    command = service_command(server, SERVER.settings, orphaned=signal.SIGTERM, others=others)
    app.command("server", epilog="Example: [bold]colane server --policy fifo --state /var/lib/colane[/bold]")(command)


def server(start: ServiceStart) -> None:
    """Run the scheduler alone; agents on this or other machines join it.

    It listens on this machine only, unless --host and a token say otherwise. Ctrl-C stops it; jobs that run go on,
    and nothing is forgotten.
    """
    from colane.client.light_httpx import prepare_httpx  # noqa: PLC0415 - imported late

    prepare_httpx()  # the scheduler's imports take long, and would bring httpx's own command line
    from colane.scheduling.registry import UnknownPolicyError  # noqa: PLC0415
    from colane.server.config import ServerConfig  # noqa: PLC0415
    from colane.server.main import ServerError, run_server  # noqa: PLC0415
    from colane.server.store.store import StoreError  # noqa: PLC0415

    if start.flags.get("hand_over"):
        from colane.cli.service.handing_over import hand_over  # noqa: PLC0415 - imported late

        hand_over()
        return
    log_to_stderr("server")
    values = start.values(SERVER)
    config = ServerConfig.of(values, state_dir(values), token_of(start, values), start.values(AGENTS))
    try:
        run_server(config)
    except UnknownPolicyError as error:
        raise MisuseError(f"--{error}") from error
    except ServerError as error:
        asked_wrongly = str(error).startswith(("host:", "token:", "tls-cert:", "standby:"))
        raise (MisuseError if asked_wrongly else FailureError)(f"--{error}") from error
    except StoreError as error:
        place = f"the store in {config.state_dir}" if config.store is None else "--store: it"
        raise FailureError(f"{place} cannot be used: {error}") from error
