"""`colane agent`: one machine's devices join a scheduler."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.agent_settings import told_by_scheduler
from colane.cli.service.command import ServiceStart, log_to_stderr, node_name, service_command, token_of
from colane.client.errors import BadUrl
from colane.client.locate import TOKEN_VARIABLE, URL_VARIABLE, default_state_dir, find_token, find_url
from colane.settings.setting import Values
from colane.settings.table import AGENT, AGENT_DIR, AGENT_STATE, NAME, TOPOLOGY, URL
from colane.settings.together import judge_heartbeat

EXAMPLE = "Example: [bold]COLANE_URL=http://head:8642 COLANE_TOKEN=... colane agent --host 0.0.0.0[/bold]"


def register(app: typer.Typer) -> None:
    """Add the command."""
    flags = [setting for setting in AGENT.settings if setting is not URL]
    app.command("agent", epilog=EXAMPLE)(service_command(agent, flags, orphaned=signal.SIGHUP))


def agent(start: ServiceStart) -> None:
    """Offer this machine's devices to a scheduler, and run the jobs it places here.

    The scheduler is found by COLANE_URL. Jobs outlive the agent: the next one takes them over.
    """
    from colane.agent.config import AgentConfig  # noqa: PLC0415 - the agent's imports take long
    from colane.agent.errors import AgentError  # noqa: PLC0415
    from colane.agent.main import run_agent  # noqa: PLC0415
    from colane.settings.input_file import InputFileError  # noqa: PLC0415
    from colane.settings.topology_file import named_topology  # noqa: PLC0415

    log_to_stderr("agent")
    values = start.values(AGENT)
    url, found_token = _scheduler(start, values)
    token, state_dir = token_of(start, values) or found_token, _state_dir(values)
    told = told_by_scheduler(url, token, state_dir)
    values = start.values(AGENT, told=told.settings)
    if told.lease_s is not None:
        judge_heartbeat(values, told.lease_s)
    named = values[TOPOLOGY]
    try:
        topology = None if named is None else named_topology(named).topology
    except InputFileError as error:
        raise MisuseError(f"--topology: {error}") from error
    config = AgentConfig.of(
        values,
        name=values[NAME] or node_name(),
        url=url,
        state_dir=state_dir,
        token=token,
        topology=topology,
    )
    os.chdir("/")  # it may run for months: it must not keep a directory from being removed
    try:
        run_agent(config)
    except AgentError as error:
        raise (MisuseError if str(error).startswith(("--devices", "--topology", "--tls-cert")) else FailureError)(
            str(error)
        ) from error


def _state_dir(values: Values) -> Path:
    return values[AGENT_STATE] or (default_state_dir() / AGENT_DIR).expanduser().absolute()


def _scheduler(start: ServiceStart, values: Values) -> tuple[str, str | None]:
    """Where the scheduler is, and the token that is known for it."""
    said = {URL_VARIABLE: values[URL], TOKEN_VARIABLE: start.token}
    environment = {**os.environ, **{name: value for name, value in said.items() if value}}
    try:
        url = find_url(environment=environment)
    except BadUrl as error:
        raise values.fault(URL, str(error).removeprefix(f"{URL_VARIABLE}: ")) from error
    return url, find_token(url, environment)
