"""Settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from colane.client.tls import TlsFiles, tls_files
from colane.model.hardware import DEFAULT_POOL, Topology
from colane.settings import table
from colane.settings.setting import SettingError, Values
from colane.settings.table import Mps


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Settings of an agent.

    Attributes:
        name: The node's name, unique in the cluster.
        scheduler_url: Base URL of the scheduler.
        state_dir: Where jobs' directories live; one agent at a time.
        token: Sent to the scheduler; None for none.
        tls: Certificate and key of its API; None for plain HTTP.
        host: Address to listen on; also the one told to the scheduler, unless it means every address.
        port: Port to listen on; 0 takes a free one.
        devices: `gpu`, `cpu:N[:MEMORY]`, or None for what there is.
        pool: Jobs of this pool run here.
        topology: How the devices are connected, in their order; None takes what discovery finds.
        host_bandwidth_bytes_per_s: Bandwidth to host memory that jobs may book; 0 does not bound them.
        heartbeat_s: Seconds between two reports when nothing happens.
        grace_s: Seconds from SIGTERM to SIGKILL for a job that is stopped.
        mps: `auto` uses MPS for jobs that ask for it, `on` for every job on one GPU, `off` for none.
        log_cap_bytes: Bytes of output kept for each job.
        stop_jobs: Stop the jobs when the agent stops; else they run on and the next agent adopts them.
        replaced: Another node takes this one's place when it is gone.
        drain_on_stop_s: When it is stopped, the node is drained first, and its jobs have so long; 0 leaves them be.
        notice_file: While it is there, the machine is about to go.
        notice_command: While it ends with 0, the machine is about to go; empty for none.
        reports_others: Tell the scheduler what work that is not ours uses of the devices; no job joins there then.
        yield_bound_s: A job that is asked for its turn and reaches no step boundary for so long is left out of turns.
        first_step_bound_s: One that shares a lane and has done no step for so long is reported.
        ended_jobs_max: Ended jobs whose logs and records are kept.
        ended_age_max_s: Logs and records of jobs that ended longer ago are dropped.
        ended_bytes_max: Disk that logs and records of ended jobs may take.
    """

    name: str
    scheduler_url: str
    state_dir: Path
    token: str | None = None
    tls: TlsFiles | None = None
    host: str = "127.0.0.1"
    port: int = 0
    devices: str | None = None
    pool: str = DEFAULT_POOL
    topology: Topology | None = None
    host_bandwidth_bytes_per_s: int = 0
    heartbeat_s: float = 2.0
    grace_s: float = 10.0
    mps: Mps = Mps.AUTO
    log_cap_bytes: int = 64 * 2**20
    stop_jobs: bool = False
    replaced: bool = False
    drain_on_stop_s: float = 0.0
    notice_file: Path | None = None
    notice_command: str = ""
    reports_others: bool = True
    yield_bound_s: float = 30.0
    first_step_bound_s: float = 600.0
    ended_jobs_max: int = 1000
    ended_age_max_s: float = 14 * 86400.0
    ended_bytes_max: int = 4 * 2**30

    @classmethod
    def of(
        cls, values: Values, *, name: str, url: str, state_dir: Path, token: str | None, topology: Topology | None
    ) -> Self:
        """Return the settings of an agent.

        Raises:
            SettingError: They do not go together.
        """
        try:
            tls = tls_files(values[table.TLS_CERT], values[table.TLS_KEY])
        except ValueError as error:
            raise SettingError(str(error)) from error
        return cls(
            name=name,
            scheduler_url=url,
            state_dir=state_dir,
            token=token,
            tls=tls,
            host=values[table.HOST],
            port=values[table.AGENT_PORT],
            devices=values[table.DEVICES],
            pool=values[table.POOL],
            topology=topology,
            host_bandwidth_bytes_per_s=values[table.HOST_BANDWIDTH] or 0,
            heartbeat_s=values[table.HEARTBEAT],
            grace_s=values[table.GRACE],
            mps=values[table.MPS],
            stop_jobs=values[table.STOP_JOBS],
            replaced=values[table.REPLACED],
            drain_on_stop_s=values[table.DRAIN_ON_STOP] or 0.0,
            notice_file=values[table.NOTICE_FILE],
            notice_command=values[table.NOTICE_COMMAND],
            reports_others=values[table.OTHERS] is table.LoadByOthers.RESPECT,
            yield_bound_s=values[table.YIELD_BOUND],
        )
