"""`colane agent`: one machine's devices join a scheduler."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import ServiceStart, log_to_stderr, node_name, service_command, token_of
from colane.client.errors import BadUrl, Refused, SchedulerUnreachable
from colane.client.locate import TOKEN_VARIABLE, URL_VARIABLE, default_state_dir, find_token, find_url
from colane.settings.setting import Given, Values
from colane.settings.table import AGENT, AGENT_DIR, AGENT_STATE, AGENTS, NAME, TOPOLOGY, URL, judge_heartbeat

# -- What the scheduler tells agents to be set to, so that machines need no file of settings each.

ANSWER_MAX_S: Final = 5.0
FILE: Final = "agent_settings.json"
LEASE: Final = "lease_s"
log = logging.getLogger(__name__)


class Told(NamedTuple):
    """What a scheduler tells an agent that starts."""

    settings: dict[str, Given]  # `[agents]` of its file
    lease_s: float | None  # how long a node may be silent; None where it does not say


def told_by_scheduler(url: str, token: str | None, state_dir: Path) -> Told:
    """Return what `[agents]` of the scheduler's file says, and its lease; while it does not answer, what it said last.

    A scheduler of an older version says nothing; what this version does not know of a newer one's is left out.
    """
    from colane.client.client import Client  # noqa: PLC0415 - imported late

    kept = state_dir / FILE
    try:
        with Client(url, token, timeout_s=ANSWER_MAX_S) as scheduler:
            answer: Mapping[str, Any] = scheduler.agent_settings()
        found: Mapping[str, Any] = {**answer["settings"], LEASE: answer.get(LEASE)}
    except Refused as error:
        if error.status != 404:
            log.warning("the scheduler does not say what agents are set to: %s", error)
        return Told({}, None)
    except SchedulerUnreachable as error:
        found = _read(kept)
        what = "what it said last" if found else "defaults"
        log.warning("no scheduler answers at %s: what it does not know itself is set to %s", error.url, what)
    else:
        _keep(kept, found)
    known = {setting.name for setting in AGENTS.settings}
    origin = f"[agents] of the scheduler at {url}"
    lease_s = found.get(LEASE)
    return Told(
        {name: Given(raw, f"{origin}: {name}") for name, raw in found.items() if name in known},
        lease_s if isinstance(lease_s, (int, float)) else None,
    )


def _read(kept: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(kept: Path, found: Mapping[str, Any]) -> None:
    """Keep it for a start without the scheduler; a full disk is told by what cannot go on without it."""
    draft = kept.with_suffix(".new")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(json.dumps(dict(found)), encoding="utf-8")
        draft.replace(kept)
    except OSError as error:
        log.warning("%s cannot be written: %s", kept, error.strerror)


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
    token = token_of(start, values) or found_token
    state_dir = values[AGENT_STATE] or (default_state_dir() / AGENT_DIR).expanduser().absolute()
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
        values, name=values[NAME] or node_name(), url=url, state_dir=state_dir, token=token, topology=topology
    )
    os.chdir("/")  # it may run for months: it must not keep a directory from being removed
    try:
        run_agent(config)
    except AgentError as error:
        raise (MisuseError if str(error).startswith(("--devices", "--topology", "--tls-cert")) else FailureError)(
            str(error)
        ) from error


def _scheduler(start: ServiceStart, values: Values) -> tuple[str, str | None]:
    """Where the scheduler is, and the token that is known for it."""
    said = {URL_VARIABLE: values[URL], TOKEN_VARIABLE: start.token}
    environment = {**os.environ, **{name: value for name, value in said.items() if value}}
    try:
        url = find_url(environment=environment)
    except BadUrl as error:
        raise values.fault(URL, str(error).removeprefix(f"{URL_VARIABLE}: ")) from error
    return url, find_token(url, environment)
