"""`colane up`: scheduler and agent on this machine, in one command."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from colane.cli import output
from colane.cli.nodes.command import on_and_off
from colane.cli.service.command import ServiceStart, node_name, service_command, state_dir, token_of
from colane.model.words import about_lease
from colane.settings import table
from colane.settings.table import AGENT, AGENTS, SERVER, UP, EngineName, judge_heartbeat

if TYPE_CHECKING:
    from pathlib import Path

    from colane.api.nodes import GpuObject, NodeObject
    from colane.engines import Engine
    from colane.engines.local import LocalEngine
    from colane.settings.setting import Setting, Values

FLAGS = (
    table.POLICY, table.MAX_WAIT, table.POLICY_BUDGET, table.DEVICES, table.TOPOLOGY, table.HOST_BANDWIDTH, table.HOST,
    table.SERVER_PORT, table.SERVER_STATE, table.STORE, table.STORE_PASSWORD_FILE, table.TOKEN_FILE, table.MPS,
    table.NAME, table.KEEP_FINISHED, table.LEASE, table.LIMITS, table.SEE, table.IDLE_AFTER, table.IDLE_RULE,
    table.NO_NIGHTLY, table.METRICS_NAMES, table.NOTIFY, table.SHARE_BETWEEN, table.TURNS, table.QUANTUM, table.GUARD,
    table.GUARD_AFTER, table.MEMORY_FACTORS, table.CORE_TUNER, table.CORE_WINDOW, table.CONTENTION,
    table.YIELD_BOUND, table.GRACE, table.KEEP_JOBS, table.ENGINE, table.PILOTS, table.GRES, table.PILOT_TIME,
    table.PILOT_LEAD, table.PARTITION, table.SLURM_OPTIONS, table.ADDRESS, table.GPUS_PER_NODE,
)  # fmt: skip


PILOTS_DIR: Final = "pilots"  # in the state directory, which is then on a file system that Slurm's nodes share
OF_EACH_NODE: Final = frozenset(
    setting.name
    for setting in (
        table.NAME, table.URL, table.HOST, table.AGENT_STATE, table.TOKEN_FILE, table.DRAIN_ON_STOP, table.STOP_JOBS,
    )
)  # fmt: skip
OF_ENGINES: Final[dict[EngineName, tuple[Setting[Any], ...]]] = {
    EngineName.SLURM: (
        table.PILOTS, table.GRES, table.PILOT_TIME, table.PILOT_LEAD, table.PARTITION, table.SLURM_OPTIONS,
    ),
    EngineName.RAY: (table.ADDRESS, table.GPUS_PER_NODE),
}  # fmt: skip
LOOK_EVERY_S: Final = 1.0
EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound to


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "Example: [bold]colane up --devices cpu:2 --policy colocate[/bold]"
    app.command("up", epilog=example)(service_command(up, FLAGS))


def up(start: ServiceStart) -> None:
    """Start a scheduler and an agent on this machine; everything else is then one command away.

    Ctrl-C stops both. Jobs that run are stopped (asked to save first, then they have the grace time), those that wait
    stay in the queue for the next time. A closed terminal is no order: it goes on in the background, and writes to
    up.log. Where it is killed, jobs that run go on, and the next 'up' takes them over.

    With --engine slurm the agents are pilots, jobs of Slurm's, which are replaced when they end; without --keep-jobs
    they are cancelled at the end. With --engine ray there is an agent on each node of a Ray cluster.
    """
    from colane.cli.service.terminal import interruptible, outlive_terminal  # noqa: PLC0415 - imported late
    from colane.engines.local import LocalConfig, LocalEngine  # noqa: PLC0415 - imported late

    server, agents = start.values(SERVER), start.values(AGENTS, without=AGENT.settings)
    agent = start.values(AGENT, without=SERVER.settings, told=agents.document())
    mode = start.values(UP)
    topology, devices = agent[table.TOPOLOGY], agent[table.DEVICES]
    is_local = mode[table.ENGINE] is EngineName.LOCAL
    _judge_engine(mode)
    if topology is not None:
        _judge(topology)
    elif devices is not None and is_local:
        _judge_devices(devices)
    from colane.server.config import file_rules  # noqa: PLC0415 - imported late

    file_rules(server)
    for each in (agent, agents):
        judge_heartbeat(each, server[table.LEASE])
    if server[table.STANDBY]:
        from colane.cli.errors import MisuseError  # noqa: PLC0415 - imported late

        raise MisuseError(
            f"{server.given[table.STANDBY.name].origin}: a standby is colane server --standby, without an agent"
        )
    config = LocalConfig(
        state_dir=state_dir(server),
        node=agent[table.NAME] or node_name(),
        server=server,
        agent=agent,
        agents=agents,
        token=token_of(start, server),
        keep_jobs=mode[table.KEEP_JOBS],
        has_agent=is_local,
    )
    with suppress(KeyboardInterrupt), interruptible(), LocalEngine(config) as stack:
        outlive_terminal(config.state_dir)
        for line in _greeting(stack):
            output.note(line)
        if is_local:
            stack.watch()
        else:
            _watch(stack, _ray(stack, mode) if mode[table.ENGINE] is EngineName.RAY else _pilots(stack, mode))
    output.note("stopped")


def _watch(stack: LocalEngine, agents: Engine) -> None:
    """Keep scheduler and agents there until this is asked to end."""
    agents.start()
    try:
        while True:
            stack.watch(LOOK_EVERY_S)
            agents.watch(0)
    finally:
        agents.stop()


def _pilots(stack: LocalEngine, mode: Values) -> Engine:
    from colane.engines.slurm import PilotConfig, SlurmEngine  # noqa: PLC0415 - imported late

    config = PilotConfig(
        folder=stack.config.state_dir / PILOTS_DIR,
        count=mode[table.PILOTS],
        time_s=mode[table.PILOT_TIME] or 0.0,
        lead_s=mode[table.PILOT_LEAD],
        url=stack.config.agent[table.URL] or _url_for_others(stack),
        gres=mode[table.GRES],
        partition=mode[table.PARTITION],
        options=shlex.split(mode[table.SLURM_OPTIONS] or ""),
        agent=_of_agents(stack),
        keep=mode[table.KEEP_JOBS],
    )
    return SlurmEngine(config, stack.client, output.note)


def _ray(stack: LocalEngine, mode: Values) -> Engine:
    from colane.engines.ray import RayConfig, RayEngine  # noqa: PLC0415 - imported late

    url = stack.config.agent[table.URL] or _url_for_others(stack)
    state = stack.config.agent[table.AGENT_STATE]
    with stack.client() as scheduler:
        cluster = scheduler.health().get("cluster_id") or "cluster"
    owner = {"cluster": cluster, "url": url, "host": socket.gethostname(), "state": str(stack.config.state_dir)}
    config = RayConfig(
        folder=stack.config.state_dir,
        address=mode[table.ADDRESS] or "",
        url=url,
        token=stack.token,
        owner=owner,
        gpus_per_node=mode[table.GPUS_PER_NODE],
        agent=_of_agents(stack) | ({} if state is None else {"state": str(state)}),
        keep=mode[table.KEEP_JOBS],
    )
    return RayEngine(config, output.note)


def _of_agents(stack: LocalEngine) -> dict[str, str | float | bool]:
    """Return what is set for all agents alike."""
    return {
        name: value.raw
        for name, value in stack.config.agent.given.items()
        if value.origin and value.raw is not None and name not in OF_EACH_NODE
    }


def _url_for_others(stack: LocalEngine) -> str:
    """Return the scheduler's URL with this machine's name where it listens on every address."""
    if stack.config.server[table.HOST] not in EVERY_ADDRESS:
        return stack.url
    return f"{stack.url.partition('://')[0]}://{socket.gethostname()}:{stack.url.rpartition(':')[2]}"


def _judge_engine(mode: Values) -> None:
    """Refuse what makes no sense for an engine before anything is started."""
    for engine, settings in OF_ENGINES.items():
        for setting in settings if mode[table.ENGINE] is not engine else ():
            if mode.given[setting.name].origin.startswith("-"):
                raise mode.fault(setting, f"is for --engine {engine}")
    if mode[table.ENGINE] is EngineName.SLURM:
        _judge_pilots(mode)
    if mode[table.ENGINE] is EngineName.RAY and mode[table.ADDRESS] is None:
        raise mode.fault(table.ADDRESS, "must be given with --engine ray: where Ray's head listens, 127.0.0.1:6379")


def _judge_pilots(mode: Values) -> None:
    time_s, lead_s = mode[table.PILOT_TIME], mode[table.PILOT_LEAD]
    if time_s is None:
        raise mode.fault(table.PILOT_TIME, "must be given with --engine slurm: how long Slurm shall let each pilot run")
    if time_s < 60.0:
        raise mode.fault(table.PILOT_TIME, "must be a minute or more, as Slurm counts minutes")
    if lead_s >= time_s:
        raise mode.fault(table.PILOT_LEAD, f"must be less than --pilot-time ({time_s:g} s), got {lead_s:g} s")
    try:
        shlex.split(mode[table.SLURM_OPTIONS] or "")
    except ValueError as error:
        raise mode.fault(table.SLURM_OPTIONS, error) from error


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
    from colane.settings.input_file import InputFileError  # noqa: PLC0415
    from colane.settings.topology_file import named_topology  # noqa: PLC0415

    if topology == "-":
        raise MisuseError("--topology -: name a file, which an agent that is started again can read again")
    try:
        named_topology(topology)
    except InputFileError as error:
        raise MisuseError(f"--topology: {error}") from error


def _greeting(stack: LocalEngine) -> Iterator[str]:
    config = stack.config
    store = config.server[table.STORE]
    kept = f"state in {config.state_dir}" + (f", store {store}" if store is not None else "")
    yield f"colane scheduler at {stack.url}, policy {config.server[table.POLICY]}, {kept}"
    node = stack.node() if config.has_agent else None
    yield from (_device(config.node, gpu) for gpu in (node["gpus"] if node is not None else ()))
    with stack.client() as scheduler:
        health = scheduler.health()
    yield f"mechanisms {on_and_off(health['mechanisms'])}"
    if health["queued"] or health["running"]:
        yield f"from before: {health['running']} running, {health['queued']} waiting"
    if node is not None:
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
