"""`colane agent`: one machine's devices join a scheduler."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.cli.service import options
from colane.cli.service.tls import TlsCert, TlsKey, tls_files


class Mps(StrEnum):
    """When jobs share a GPU through NVIDIA MPS."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


MpsOption = Annotated[
    Mps, typer.Option("--mps", help="NVIDIA MPS: auto for jobs that ask for it, on for every job on one GPU, or off.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", show_default="the machine's name", help="Name of the node, unique.")
]
TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="FILE|PRESET",
        show_default="what is found",
        help="How the devices are connected, as colane topo --import takes it; cpu devices may then share cores.",
    ),
]
BandwidthOption = Annotated[
    str | None,
    typer.Option(
        "--host-bandwidth",
        metavar="RATE",
        show_default="not bounded",
        help="Bandwidth to host memory that jobs may book here, as 150GB/s.",
    ),
]


class LoadByOthers(StrEnum):
    """What an agent does about work on its devices that is not Colane's."""

    HEED = "heed"
    IGNORE = "ignore"


OthersOption = Annotated[
    LoadByOthers,
    typer.Option(
        "--others",
        envvar="COLANE_OTHERS",
        show_envvar=True,
        help="Work of others on the devices: heed it (nothing is learnt from jobs next to it, no sharing by "
        "prediction, quiet devices first), or ignore it.",
    ),
]
DrainOnStop = Annotated[
    str | None,
    typer.Option(
        "--drain-on-stop",
        metavar="TIME",
        show_default="leaves the jobs",
        help="At SIGTERM (a machine's shutdown) drain the node first: its jobs have so long (60s) to save and leave.",
    ),
]
NoticeFile = Annotated[
    Path | None,
    typer.Option(
        "--notice-file",
        show_default=False,
        help="The node is drained while this file is there: when the machine goes (120, or 2026-11-22T16:00:00Z) and "
        "why, both may be left out.",
    ),
]
NoticeCommand = Annotated[
    str,
    typer.Option(
        "--notice-command",
        metavar="COMMAND",
        show_default=False,
        help="The node is drained while this ends with 0, asked every 5 s (a cloud's notice to a spot instance); it "
        "prints what --notice-file would hold.",
    ),
]
PoolOption = Annotated[str, typer.Option("--pool", help="Only jobs of this pool run here.")]
GraceOption = Annotated[
    str,
    typer.Option(
        "--grace",
        metavar="TIME",
        help="What a job's processes have to end after SIGTERM, however it ends (cancelled, over time, drained, "
        "stopped for others, with the agent); then SIGKILL. The time to save (--checkpoint-lead) comes before it.",
    ),
]
GRACE = "10s"
Heartbeat = Annotated[float, typer.Option("--heartbeat", min=0.05, help="Seconds between two reports of progress.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    example = "Example: [bold]COLANE_URL=http://head:8642 COLANE_TOKEN=... colane agent --host 0.0.0.0[/bold]"
    app.command("agent", epilog=example)(agent)


def agent(  # noqa: PLR0913, PLR0917 - a command line option is a parameter
    name: NameOption = None,
    devices: options.Devices = None,
    mps: MpsOption = Mps.AUTO,
    pool: PoolOption = "default",
    topology: TopologyOption = None,
    host_bandwidth: BandwidthOption = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 0,
    state: Annotated[
        Path | None,
        typer.Option("--state", show_default="agent in the scheduler's", help="Where jobs' logs and records are kept."),
    ] = None,
    token_file: options.TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="Stop the jobs with the agent; else they run on for the next one.")
    ] = False,
    drain_on_stop: DrainOnStop = None,
    notice_file: NoticeFile = None,
    notice_command: NoticeCommand = "",
    heartbeat: Heartbeat = 2.0,
    grace: GraceOption = GRACE,
    yield_bound: options.YieldBound = options.YIELD_BOUND,
    others: OthersOption = LoadByOthers.HEED,
    with_parent: options.WithParent = False,
) -> None:
    """Offer this machine's devices to a scheduler, and run the jobs it places here.

    The scheduler is found by COLANE_URL. Jobs outlive the agent: the next one takes them over.
    """
    from colane.agent.config import AgentConfig  # noqa: PLC0415 - the agent's imports take long
    from colane.agent.errors import AgentError  # noqa: PLC0415
    from colane.agent.main import run_agent  # noqa: PLC0415
    from colane.cli.nodes.topo import imported  # noqa: PLC0415
    from colane.client.locate import find_token, find_url  # noqa: PLC0415

    options.log_to_stderr("agent")
    if with_parent:
        options.stop_with_parent(signal.SIGHUP)  # which leaves the jobs
    url = find_url()
    config = AgentConfig(
        name=name or options.node_name(),
        scheduler_url=url,
        state_dir=(state or options.state_dir(None) / options.AGENT_DIR).absolute(),
        token=options.token(token_file) or find_token(url),
        host=host,
        tls=tls_files(tls_cert, tls_key),
        port=port,
        devices=devices,
        pool=pool,
        heartbeat_s=heartbeat,
        grace_s=options.time_s("--grace", grace),
        yield_bound_s=options.yield_bound_s(yield_bound),
        mps=mps.value,
        topology=None if topology is None else imported(topology, "--topology").topology,
        host_bandwidth_bytes_per_s=options.rate("--host-bandwidth", host_bandwidth) or 0,
        stop_jobs=stop_jobs,
        drain_on_stop_s=0.0 if drain_on_stop is None else options.time_s("--drain-on-stop", drain_on_stop),
        notice_file=None if notice_file is None else notice_file.absolute(),
        notice_command=notice_command,
        heeds_others=others is LoadByOthers.HEED,
    )
    os.chdir("/")  # it may run for months: it must not keep a directory from being removed
    try:
        run_agent(config)
    except AgentError as error:
        raise (MisuseError if str(error).startswith(("--devices", "--topology", "--tls-cert")) else FailureError)(
            str(error)
        ) from error
