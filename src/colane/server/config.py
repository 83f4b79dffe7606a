"""What the scheduler is told when it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from colane.client.tls import TlsFiles, tls_files
from colane.core.config import CoreConfig
from colane.cpu.contention import ContentionConfig
from colane.model.choices import IdleRule, MetricNames, See
from colane.model.limits import QUEUED_DEFAULT, Limits, Quotas
from colane.policyfiles.guard import BUDGET_S, budget_s
from colane.server.ground.job_tokens import new_key
from colane.server.ground.pools import PoolRules
from colane.server.notify.channels import NotifyConfig, NotifyError, read_channels
from colane.server.store.identity import GRANTED_BEFORE_S
from colane.server.writer.limits import LimitsError, read_pools, read_quotas
from colane.settings import table
from colane.settings.readers import Retention
from colane.settings.setting import Raw, SettingError, Values
from colane.settings.store_address import StoreAddress
from colane.settings.table import judge_heartbeat


class FileRules(NamedTuple):
    """What is read of files again while the scheduler runs; as `ServiceConfig` has it."""

    quotas: Quotas = Quotas(Limits(queued=QUEUED_DEFAULT))
    pools: PoolRules = PoolRules()
    notify: NotifyConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What the service needs to know."""

    policy: str = "colane"  # registered name, or FILE.py:NAME of a user's own
    # a job that has waited longer is overdue under any policy; None as the policy has it
    max_wait_s: float | None = None
    workdir: str = field(default_factory=lambda: str(Path.cwd()))  # directory of jobs that name none
    policy_budget_s: float = BUDGET_S  # what a pass of a user's own policy may take
    tick_s: float = 1.0  # the core is asked at least this often
    node_timeout_s: float = 60.0  # a node silent for longer is lost
    # the same of one with a server, or whose jobs cannot all be halted; None: no longer
    unhalted_lease_s: float | None = None
    batch_jobs_max: int = 10_000  # jobs in one request
    keep_finished: Retention = field(default_factory=Retention)  # what is kept of finished jobs
    quotas: Quotas = field(default_factory=Quotas)  # how much users may have
    pools: PoolRules = field(default_factory=PoolRules)  # what pools are for
    see: See = See.ALL  # which jobs users are told of
    idle_after_s: float | None = 1800.0  # a job that has used nothing for so long is shown as idle; None shows none
    idle_rule: IdleRule = IdleRule.NONE  # what becomes of such a job
    metrics_names: frozenset[MetricNames] = frozenset()  # names that `/metrics` has besides Colane's own
    # channels by which owners of jobs are told; None for no word
    notify: NotifyConfig | None = field(default=None, repr=False)
    outbox: Path | None = None  # file of what is yet to be told; None keeps it in memory alone
    foreseen: Path | None = None  # file of what was learnt of starts and ends, likewise
    nightly: bool = True  # whether it is worked out each night what sharing did for users
    shared: Path | None = None  # file of what that was; None works it out never
    core: CoreConfig = field(default_factory=CoreConfig)  # how jobs are treated, whatever the policy
    job_key: bytes = field(default_factory=new_key, repr=False)  # by which tokens of jobs are made and known again
    samples: Path | None = None  # file of samples; None keeps them in memory alone
    # how long this scheduler leads without having written; 0 where no other may take over, None of a store in a file
    leader_lease_s: float | None = None
    own_url: str = ""  # where others reach it
    # variables by which processes beside it reach it as operators; none where nothing listens
    reached_by: Mapping[str, str] = field(default_factory=dict, repr=False)
    # what it tells agents to be set to where they are told nothing else, by names of settings
    agents: Mapping[str, Raw] = field(default_factory=dict)

    read: Callable[[], FileRules] = field(default=FileRules, compare=False, repr=False)

    @property
    def lease_max_s(self) -> float:
        """The longest lease that any node is granted while all goes on."""
        return max(self.node_timeout_s, self.unhalted_lease_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(ServiceConfig):
    """Settings of a scheduler: those of its service, and of where it listens and keeps what it knows."""

    state_dir: Path  # holds the store, the lock and `server.json`; made when it is not there
    store: StoreAddress | None = None  # where all is kept over the network; None for a file in the state directory
    store_password_file: Path | None = None  # holds the password of its server
    standby: bool = False  # wait to lead until the scheduler that does is silent
    host: str = "127.0.0.1"  # address to listen on; other than loopback needs a token
    port: int = table.DEFAULT_PORT  # 0 takes a free one
    # needed by every client; None takes the one in the state directory, made when it is not there
    token: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None  # certificate and key of what listens at TCP; None for plain HTTP

    @classmethod
    def of(cls, values: Values, state_dir: Path, token: str | None, agents: Values | None = None) -> Self:
        """Return the settings of a scheduler, and of all agents as far as it tells those.

        Raises SettingError: they do not go together, or a file that they name says what cannot be.
        """
        if agents is not None:
            judge_heartbeat(agents, values[table.LEASE])
        rules = file_rules(values)
        return cls(
            state_dir=state_dir,
            store=values[table.STORE],
            store_password_file=values[table.STORE_PASSWORD_FILE],
            standby=values[table.STANDBY],
            leader_lease_s=None if values[table.STORE] is None else values[table.LEADER_LEASE],
            own_url=values[table.OWN_URL] or "",
            host=values[table.HOST],
            port=values[table.SERVER_PORT],
            policy=values[table.POLICY],
            max_wait_s=values[table.MAX_WAIT],
            policy_budget_s=_budget_s(values),
            token=token,
            tls=_tls(values),
            keep_finished=values[table.KEEP_FINISHED],
            node_timeout_s=values[table.LEASE],
            unhalted_lease_s=None if values.is_given(table.LEASE) else GRANTED_BEFORE_S,
            quotas=rules.quotas,
            pools=rules.pools,
            see=values[table.SEE],
            idle_after_s=values[table.IDLE_AFTER],
            idle_rule=values[table.IDLE_RULE],
            nightly=not values[table.NO_NIGHTLY],
            metrics_names=values[table.METRICS_NAMES],
            notify=rules.notify,
            read=partial(file_rules, values),
            core=core_config(values),
            agents={} if agents is None else agents.raw(),
        )


def core_config(values: Values) -> CoreConfig:
    """Return the settings of the core."""
    margin_ratio = values[table.GUARD]
    interval_s = values[table.CONTENTION]
    return CoreConfig(
        share_between=values[table.SHARE_BETWEEN],
        turn_rule=values[table.TURNS],
        quantum_s=values[table.QUANTUM],
        guard=margin_ratio is not None,
        guard_margin_ratio=CoreConfig().guard_margin_ratio if margin_ratio is None else margin_ratio,
        guard_after_s=values[table.GUARD_AFTER],
        memory_factors=values[table.MEMORY_FACTORS],
        tuning=table.tuning(values),
        contention=None if interval_s is None else ContentionConfig.of(interval_s),
    )


def _budget_s(values: Values) -> float:
    try:
        return budget_s([values[table.POLICY]], values[table.POLICY_BUDGET])
    except ValueError as error:
        raise values.fault(table.POLICY_BUDGET, error) from error


def _tls(values: Values) -> TlsFiles | None:
    try:
        return tls_files(values[table.TLS_CERT], values[table.TLS_KEY])
    except ValueError as error:
        raise SettingError(str(error)) from error


def quotas(values: Values) -> Quotas:
    """Return the limits that the file of limits says; where there is no file, the default on jobs that wait.

    Raises SettingError: it cannot be read, or says what cannot be.
    """
    return _limits(values).quotas


def _limits(values: Values) -> FileRules:
    file = values[table.LIMITS]
    try:
        return FileRules() if file is None else FileRules(read_quotas(file), read_pools(file))
    except LimitsError as error:
        raise values.fault(table.LIMITS, error) from error


def file_rules(values: Values) -> FileRules:
    """Return what the files of limits and of channels say.

    Raises:
        SettingError: One cannot be read, or says what cannot be.
    """
    file, found = values[table.NOTIFY], _limits(values)
    try:
        return found if file is None else found._replace(notify=read_channels(file))
    except NotifyError as error:
        raise values.fault(table.NOTIFY, error) from error
