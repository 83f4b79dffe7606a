"""`colane up`: scheduler and agent on this machine, in one command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colane.cli import output
from colane.cli.service import core_options, options
from colane.cli.service.agent import GRACE, BandwidthOption, GraceOption, Mps, MpsOption, NameOption, TopologyOption
from colane.cli.service.limits import LimitsOption, SeeOption, quotas
from colane.model.lane import ShareBetween
from colane.model.see import See
from colane.model.words import about_lease

if TYPE_CHECKING:
    from pathlib import Path

    from colane.cli.service.stack import Stack


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up", epilog="Example: [bold]colane up --devices cpu:2 --policy colocate[/bold]")(up)


def up(  # noqa: PLR0913, PLR0917 - a command line option is a parameter
    policy: options.Policy = "colane",
    policy_budget: options.PolicyBudget = None,
    devices: options.Devices = None,
    topology: TopologyOption = None,
    host_bandwidth: BandwidthOption = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
    state: options.State = None,
    token_file: options.TokenFile = None,
    mps: MpsOption = Mps.AUTO,
    name: NameOption = None,
    keep_finished: options.KeepFinished = options.KEEP_FINISHED,
    lease: options.LeaseOption = options.LEASE,
    limits: LimitsOption = None,
    see: SeeOption = See.ALL,
    share_between: options.ShareOption = ShareBetween.ALL,
    turns: options.TurnsOption = None,
    quantum: options.QuantumOption = None,
    guard: options.GuardOption = options.GUARD,
    guard_after: options.GuardAfterOption = options.GUARD_AFTER,
    memory_factors: options.FactorsOption = options.FACTORS,
    core_tuner: core_options.CoreTunerOption = core_options.CoreTunerChoice.OFF,
    core_window: core_options.CoreWindowOption = core_options.CORE_WINDOW,
    contention: core_options.ContentionOption = core_options.CONTENTION,
    yield_bound: options.YieldBound = options.YIELD_BOUND,
    grace: GraceOption = GRACE,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Let running jobs go on at the end; the next 'up' takes them over.")
    ] = False,
) -> None:
    """Start a scheduler and an agent on this machine; everything else is then one command away.

    Ctrl-C stops both. Jobs that run are stopped (asked to save first, then they have the grace time), those that wait
    stay in the queue for the next time. A closed terminal is no order: it goes on in the background, and writes to
    up.log. Where it is killed, jobs that run go on, and the next 'up' takes them over.
    """
    from colane.cli.service.stack import Stack, StackConfig, interruptible, outlive_terminal  # noqa: PLC0415 - imported late

    if topology is not None:
        _judge(topology)
    elif devices is not None:
        _judge_devices(devices)
    sharing = options.Sharing(
        share_between, turns, quantum, guard, guard_after, memory_factors, core_tuner, core_window, contention
    ).words()
    quotas(limits)
    config = StackConfig(
        state_dir=options.state_dir(state),
        node=name or options.node_name(),
        host=host,
        port=port,
        policy=policy,
        devices=devices,
        topology=topology,
        host_bandwidth=options.rate("--host-bandwidth", host_bandwidth),
        token=options.token(token_file),
        mps=mps.value,
        keep_jobs=keep_jobs,
        yield_bound_s=options.yield_bound_s(yield_bound),
        grace_s=options.time_s("--grace", grace),
        keep_finished=options.retention(keep_finished),
        lease_s=options.lease_s(lease),
        limits=None if limits is None else limits.expanduser().absolute(),
        see=see,
        sharing=(*sharing, *options.budget_words(policy, policy_budget)),
    )
    with suppress(KeyboardInterrupt), interruptible(), Stack(config) as stack:
        outlive_terminal(config.state_dir)
        for line in _greeting(stack):
            output.note(line)
        stack.watch()
    output.note("stopped")


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


def _greeting(stack: Stack) -> Iterator[str]:
    config = stack.config
    yield f"colane scheduler at {stack.url}, policy {config.policy}, state in {config.state_dir}"
    node = stack.node()
    yield from (_device(config.node, gpu) for gpu in node["gpus"])
    with stack.client() as scheduler:
        health = scheduler.health()
    if health["queued"] or health["running"]:
        yield f"from before: {health['running']} running, {health['queued']} waiting"
    yield from _about_users(node)
    yield about_lease(config.lease_s)
    if not _is_found_by_itself(config.state_dir):
        yield f"in other terminals: export COLANE_STATE={config.state_dir}"
    yield f"with its terminal closed it goes on in the background: then kill {os.getpid()} stops all"
    yield "submit with 'colane submit -- python train.py', look with 'colane ps', stop all with Ctrl-C"


def _about_users(node: dict[str, Any]) -> Iterator[str]:
    """Say what being root means for users; other users have no choice."""
    if os.geteuid() == 0:
        only = node["runs_as"]
        served = f"only {only} may submit" if only else "every user of this machine may submit"
        yield f"run by root: {served}; jobs run as their submitters"


def _is_found_by_itself(state_dir: Path) -> bool:
    """Whether a client without COLANE_STATE finds this scheduler."""
    from colane.client.locate import default_state_dir  # noqa: PLC0415 - imported late

    return state_dir == default_state_dir({}).absolute()


def _device(node: str, gpu: dict[str, Any]) -> str:
    from colane.cli.nodes.command import ranges  # noqa: PLC0415 - imported late

    cores = f", cores {ranges(gpu['cores'])}" if gpu["cores"] else ""
    return f"device {node}/{gpu['index']}: {gpu['type']}, {output.size(gpu['memory_bytes'])}{cores}"
