"""Settings of an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from colane.client.tls import TlsFiles, tls_files
from colane.model.hardware import DEFAULT_POOL, Topology
from colane.settings import table
from colane.settings.setting import Setting, SettingError, Values
from colane.settings.table import Mps

PROLOG, EPILOG, HEALTH_CHECK = "prolog", "epilog", "health check"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Settings of an agent."""

    name: str  # the node's name, unique in the cluster
    scheduler_url: str  # base URL of the scheduler
    state_dir: Path  # where jobs' directories live; one agent at a time
    token: str | None = None  # sent to the scheduler; None for none
    tls: TlsFiles | None = None  # certificate and key of its API; None for plain HTTP
    host: str = "127.0.0.1"  # address to listen on; also the one told to the scheduler, unless it means every address
    port: int = 0  # port to listen on; 0 takes a free one
    devices: str | None = None  # `gpu`, `cpu:N[:MEMORY]`, or None for what there is
    pool: str = DEFAULT_POOL  # jobs of this pool run here
    topology: Topology | None = None  # how the devices are connected, in their order; None takes what discovery finds
    host_bandwidth_bytes_per_s: int = 0  # bandwidth to host memory that jobs may book; 0 does not bound them
    heartbeat_s: float = 2.0  # seconds between two reports when nothing happens
    grace_s: float = 10.0  # seconds from SIGTERM to SIGKILL for a job that is stopped
    mps: Mps = Mps.AUTO  # `auto` uses MPS for jobs that ask for it, `on` for every job on one GPU, `off` for none
    log_cap_bytes: int = 64 * 2**20  # bytes of output kept for each job
    stop_jobs: bool = False  # stop the jobs when the agent stops; else they run on and the next agent adopts them
    replaced: bool = False  # another node takes this one's place when it is gone
    # when it is stopped, the node is drained first, and its jobs have so long; 0 leaves them be
    drain_on_stop_s: float = 0.0
    notice_file: Path | None = None  # while it is there, the machine is about to go
    notice_command: str = ""  # while it ends with 0, the machine is about to go; empty for none
    hooks: Mapping[str, Path | None] = field(default_factory=dict)  # the operator's programs, by kind (`link.hooks`)
    hook_limit_s: float = 300.0  # how long one may take
    # tell the scheduler what work that is not ours uses of the devices; no job joins there then
    reports_others: bool = True
    # a job that is asked for its turn and reaches no step boundary for so long is left out of turns
    yield_bound_s: float = 30.0
    first_step_bound_s: float = 600.0  # one that shares a lane and has done no step for so long is reported
    ended_jobs_max: int = 1000  # ended jobs whose logs and records are kept
    ended_age_max_s: float = 14 * 86400.0  # logs and records of jobs that ended longer ago are dropped
    ended_bytes_max: int = 4 * 2**30  # disk that logs and records of ended jobs may take

    @classmethod
    def of(
        cls, values: Values, *, name: str, url: str, state_dir: Path, token: str | None, topology: Topology | None
    ) -> Self:
        """Return the settings of an agent. Raises SettingError: they do not go together."""
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
            hooks={kind: _program(values, setting) for kind, setting in HOOKS.items()},
            hook_limit_s=values[table.HOOK_LIMIT],
            reports_others=values[table.OTHERS] is table.LoadByOthers.RESPECT,
            yield_bound_s=values[table.YIELD_BOUND],
        )


HOOKS: Final = {PROLOG: table.PROLOG, EPILOG: table.EPILOG, HEALTH_CHECK: table.HEALTH_CHECK}


def _program(values: Values, setting: Setting[Path | None]) -> Path | None:
    path = values[setting]
    if path is not None and not (path.is_file() and os.access(path, os.X_OK)):
        raise values.fault(setting, f"must be an executable file, {path} is none")
    return path
