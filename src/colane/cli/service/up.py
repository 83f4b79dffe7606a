"""`colane up`: scheduler and agent on this machine, in one command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from colane.cli import output
from colane.cli.service.command import ServiceStart, node_name, service_command, state_dir, token_of
from colane.model.words import about_lease
from colane.settings import table
from colane.settings.table import AGENT, SERVER, UP

if TYPE_CHECKING:
    from pathlib import Path

    from colane.api.nodes import GpuObject, NodeObject
    from colane.engines.local import LocalEngine
    from colane.settings.setting import Values

FLAGS = (
    table.POLICY, table.POLICY_BUDGET, table.DEVICES, table.TOPOLOGY, table.HOST_BANDWIDTH, table.HOST,
    table.SERVER_PORT, table.SERVER_STATE, table.STORE, table.STORE_PASSWORD_FILE, table.TOKEN_FILE, table.MPS,
    table.NAME, table.KEEP_FINISHED, table.LEASE, table.LIMITS, table.SEE, table.SHARE_BETWEEN, table.TURNS,
    table.QUANTUM, table.GUARD, table.GUARD_AFTER, table.MEMORY_FACTORS, table.CORE_TUNER, table.CORE_WINDOW,
    table.CONTENTION, table.YIELD_BOUND, table.GRACE, table.KEEP_JOBS,
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "Example: [bold]colane up --devices cpu:2 --policy colocate[/bold]"
    app.command("up", epilog=example)(service_command(up, FLAGS))


def up(start: ServiceStart) -> None:
    """Start a scheduler and an agent on this machine; everything else is then one command away.

    Ctrl-C stops both. Jobs that run are stopped (asked to save first, then they have the grace time), those that wait
    stay in the queue for the next time. A closed terminal is no order: it goes on in the background, and writes to
    up.log. Where it is killed, jobs that run go on, and the next 'up' takes them over.
    """
    from colane.cli.service.terminal import interruptible, outlive_terminal  # noqa: PLC0415 - imported late
    from colane.engines.local import LocalConfig, LocalEngine  # noqa: PLC0415 - imported late

    server, agent = start.values(SERVER), start.values(AGENT, without=SERVER.settings)
    topology, devices = agent[table.TOPOLOGY], agent[table.DEVICES]
    if topology is not None:
        _judge(topology)
    elif devices is not None:
        _judge_devices(devices)
    _judge_limits(server)
    config = LocalConfig(
        state_dir=state_dir(server),
        node=agent[table.NAME] or node_name(),
        server=server,
        agent=agent,
        token=token_of(start, server),
        keep_jobs=start.values(UP)[table.KEEP_JOBS],
    )
    with suppress(KeyboardInterrupt), interruptible(), LocalEngine(config) as stack:
        outlive_terminal(config.state_dir)
        for line in _greeting(stack):
            output.note(line)
        stack.watch()
    output.note("stopped")


def _judge_limits(server: Values) -> None:
    """Refuse limits that the scheduler could not read, before anything is started."""
    from colane.server.config import quotas  # noqa: PLC0415 - imported late

    quotas(server)


def _judge_devices(devices: str) -> None:
    """Refuse cpu devices that cannot be had here, before anything is started; GPUs are the agent's to find."""
    from colane.cli.errors import MisuseError  # noqa: PLC0415 - imported late
    from colane.devices.cpu import DeviceSpecError  # noqa: PLC0415
    from colane.devices.discover import GPU_SPEC, discover  # noqa: PLC0415

    try:
        if devices != GPU_SPEC:
            discover(devices)
    except DeviceSpecError as error:
        raise MisuseError(str(error)) from error


def _judge(topology: str) -> None:
    """Refuse a topology that the agent could not read, before anything is started."""
    from colane.cli.errors import MisuseError  # noqa: PLC0415 - imported late
    from colane.cli.nodes.topo import imported  # noqa: PLC0415

    if topology == "-":
        raise MisuseError("--topology -: name a file, which an agent that is started again can read again")
    imported(topology, "--topology")


def _greeting(stack: LocalEngine) -> Iterator[str]:
    config = stack.config
    store = config.server[table.STORE]
    kept = f"state in {config.state_dir}" + (f", store {store}" if store is not None else "")
    yield f"colane scheduler at {stack.url}, policy {config.server[table.POLICY]}, {kept}"
    node = stack.node()
    yield from (_device(config.node, gpu) for gpu in node["gpus"])
    with stack.client() as scheduler:
        health = scheduler.health()
    if health["queued"] or health["running"]:
        yield f"from before: {health['running']} running, {health['queued']} waiting"
    yield from _about_users(node)
    yield about_lease(config.server[table.LEASE])
    if not _is_found_by_itself(config.state_dir):
        yield f"in other terminals: export COLANE_STATE={config.state_dir}"
    yield f"with its terminal closed it goes on in the background: then kill {os.getpid()} stops all"
    yield "submit with 'colane submit -- python train.py', look with 'colane ps', stop all with Ctrl-C"


def _about_users(node: NodeObject) -> Iterator[str]:
    """Say what being root means for users; other users have no choice."""
    if os.geteuid() == 0:
        only = node["runs_as"]
        served = f"only {only} may submit" if only else "every user of this machine may submit"
        yield f"run by root: {served}; jobs run as their submitters"


def _is_found_by_itself(state_dir: Path) -> bool:
    """Whether a client without COLANE_STATE finds this scheduler."""
    from colane.client.locate import default_state_dir  # noqa: PLC0415 - imported late

    return state_dir == default_state_dir({}).absolute()


def _device(node: str, gpu: GpuObject) -> str:
    from colane.cli.nodes.command import ranges  # noqa: PLC0415 - imported late

    cores = f", cores {ranges(gpu['cores'])}" if gpu["cores"] else ""
    return f"device {node}/{gpu['index']}: {gpu['type']}, {output.size(gpu['memory_bytes'])}{cores}"
