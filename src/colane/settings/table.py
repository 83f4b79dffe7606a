"""Every setting of the scheduler, the agent, `colane up` and the other commands, once.

Each is a flag of its command, a variable (`COLANE_SERVER_GUARD`), and a key of a table of `colane.toml` (`[server]`,
`guard = "30%"`); a flag counts before a variable, that before the file, that before the default.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from colane.cpu.config import TuningConfig
from colane.cpu.tuner import TunerName
from colane.model.choices import IdleRule, See
from colane.model.hardware import DEFAULT_POOL
from colane.model.job_spec import ShareBetween
from colane.model.placement import TurnRule
from colane.settings import readers
from colane.settings.setting import Section, Setting, Values, number, one_of, path, switch, text
from colane.settings.store_address import StoreAddress, store_address

DEFAULT_PORT: Final = 8642
PORT_MAX: Final = 65535
PILOTS_MAX: Final = 1000
AGENT_DIR: Final = "agent"  # the agent's part of a state directory


class Mps(StrEnum):
    """When jobs share a GPU through NVIDIA MPS."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EngineName(StrEnum):
    """What starts the agents of `colane up`."""

    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


class LoadByOthers(StrEnum):
    """What an agent does about work on its devices that is not Colane's."""

    RESPECT = "respect"
    IGNORE = "ignore"


class CoreTunerChoice(StrEnum):
    """Which tuner looks for the right number of cores."""

    OFF = "off"
    LINEAR = "linear"
    STEP = "step"


HOST: Final = Setting(
    name="host", read=text, default="127.0.0.1", help="Address to listen on. Any but loopback needs a token."
)
TOKEN_FILE: Final[Setting[Path | None]] = Setting(
    name="token_file",
    read=path,
    takes=Path,
    variables=("COLANE_TOKEN_FILE",),
    default_told="token in the state directory",
    help="File with the token demanded of every client; COLANE_TOKEN holds one itself.",
)
CLIENT_TOKEN_FILE: Final[Setting[Path | None]] = Setting(
    name="token_file",
    read=path,
    takes=Path,
    variables=("COLANE_TOKEN_FILE",),
    default_told="token in the scheduler's state directory",
    help="File with the token that is sent; COLANE_TOKEN holds one itself.",
)
CA_FILE: Final[Setting[Path | None]] = Setting(
    name="ca_file",
    read=path,
    takes=Path,
    variables=("COLANE_CA_FILE",),
    default_told="the system's alone",
    help="Certificates (PEM) that are trusted beside the system's.",
)
TLS_CERT: Final[Setting[Path | None]] = Setting(
    name="tls_cert",
    read=path,
    takes=Path,
    metavar="FILE",
    default_told="plain HTTP",
    help="Certificate (PEM) of what listens; callers trust the system's CAs and those in COLANE_CA_FILE.",
)
TLS_KEY: Final[Setting[Path | None]] = Setting(
    name="tls_key", read=path, takes=Path, metavar="FILE", default_told="none", help="The certificate's key (PEM)."
)


def _port(default: int) -> Setting[int]:
    return Setting(
        name="port",
        read=number(int, 0, PORT_MAX),
        default=default,
        takes=int,
        at_least=0,
        at_most=PORT_MAX,
        help="Port to listen on; 0 takes a free one.",
    )


SERVER_PORT: Final = _port(DEFAULT_PORT)
SERVER_STATE: Final[Setting[Path | None]] = Setting(
    name="state",
    read=path,
    takes=Path,
    variables=("COLANE_STATE",),
    default_told="colane in the user's state directory",
    help="Where everything is kept.",
)
STORE: Final[Setting[StoreAddress | None]] = Setting(
    name="store",
    read=store_address,
    metavar="URL",
    default_told="colane.db in the state directory",
    help="Where jobs and nodes are kept instead: redis://db:6379/0, or postgres://db/colane (docs/how-to/stores.md).",
)
STORE_PASSWORD_FILE: Final[Setting[Path | None]] = Setting(
    name="store_password_file",
    read=path,
    takes=Path,
    metavar="FILE",
    default_told="none",
    help="File with the password of the store's server; COLANE_STORE_PASSWORD holds one itself.",
)
STANDBY: Final = Setting(
    name="standby",
    read=switch,
    default=False,
    takes=bool,
    help="Wait beside the scheduler that leads on the store, and lead once it is silent "
    "(docs/how-to/high-availability.md).",
)
LEADER_LEASE: Final = Setting(
    name="leader_lease",
    read=readers.leader_lease_s,
    default="5s",
    metavar="TIME|off",
    help="With a store over the network: for so long the scheduler leads without having written there; then a standby "
    "does. Off where there is none: it answers though its store is away.",
)
OWN_URL: Final[Setting[str | None]] = Setting(
    name="own_url",
    read=readers.own_url,
    metavar="URL",
    default_told="http://HOST:PORT",
    help="Where others reach this scheduler: a standby sends clients there.",
)
POLICY: Final = Setting(
    name="policy",
    read=text,
    default="colane",
    metavar="NAME|FILE.py:NAME",
    help="colane (what is worth most), colocate (share where it pays), fifo (one job a GPU), ...; a wrong name "
    "lists all. Options follow the name, as pack:share_when=always. FILE.py:NAME is a policy of your own.",
)
MAX_WAIT: Final[Setting[float | None]] = Setting(
    name="max_wait",
    read=readers.some_time_or_off_s,
    default="1d",
    metavar="TIME|off",
    help="A job that has waited longer goes first, and GPUs are kept for it as they come free, under any policy that "
    "would let it wait longer; a policy's own max_wait_s goes before this.",
)
POLICY_BUDGET: Final[Setting[float | None]] = Setting(
    name="policy_budget",
    read=readers.some_time_s,
    metavar="TIME",
    default_told="5s",
    help="What a policy of your own may take each time it is asked.",
)
KEEP_FINISHED: Final = Setting(
    name="keep_finished",
    read=readers.parse_retention,
    default="90d",
    metavar="TIME|COUNT|all",
    help="Records of finished jobs to keep: as long as 30d, the last 10000, or all.",
)
LIMITS: Final[Setting[Path | None]] = Setting(
    name="limits",
    read=path,
    takes=Path,
    metavar="FILE",
    default_told="10000 waiting jobs a user",
    help="What users and groups may use: gpus, running, queued, submits_per_minute, deadline_gpus, guaranteed_gpus "
    "(docs/how-to/security.md).",
)
LEASE: Final = Setting(
    name="lease",
    read=readers.lease_s,
    default="14s",
    metavar="TIME",
    help="How long jobs of a pool of several nodes go on without word from the scheduler; then they stand still until "
    "it is back. A node that dies is noticed after as long. Jobs of a pool's only node go on in any case.",
)
SEE: Final = Setting(
    name="see",
    read=one_of(See),
    default=See.ALL,
    takes=See,
    help="Which jobs users are told of: all, or their own; operators are told of all.",
)
IDLE_AFTER: Final[Setting[float | None]] = Setting(
    name="idle_after",
    read=readers.duration_or_off_s,
    default="30m",
    metavar="TIME|off",
    help="A job that holds a GPU and has made no step and run no kernel for so long is shown as idle.",
)
IDLE_RULE: Final = Setting(
    name="idle_rule",
    read=one_of(IdleRule),
    default=IdleRule.NONE,
    takes=IdleRule,
    help="What becomes of idle jobs: none; park, which frees their devices until they would step again; or stop, which "
    "cancels them. Their owners are told in any case.",
)
NO_NIGHTLY: Final = Setting(
    name="no_nightly",
    read=switch,
    default=False,
    takes=bool,
    help="Do not work out each night, niced and on one core, what sharing did for each user on the day before.",
)
METRICS_NAMES: Final = Setting(
    name="metrics_names",
    read=readers.metrics_names,
    default="none",
    metavar="dcgm,slurm",
    help="Names that /metrics has besides Colane's own: those of DCGM, of slurmctld, both, or none.",
)
NOTIFY: Final[Setting[Path | None]] = Setting(
    name="notify",
    read=path,
    takes=Path,
    metavar="FILE",
    default_told="no word",
    help="Channels by which owners of jobs are told: webhooks, commands, mail (docs/how-to/notify.md).",
)
SHARE_BETWEEN: Final = Setting(
    name="share_between",
    read=one_of(ShareBetween),
    default=ShareBetween.ALL,
    takes=ShareBetween,
    help="Which jobs may share a GPU: all, those of one --group (else one user), or one user's.",
)
TURNS: Final[Setting[TurnRule | None]] = Setting(
    name="turns",
    read=one_of(TurnRule),
    takes=TurnRule,
    default_told="the policy's",
    help="Which job of a lane makes the next step.",
)
QUANTUM: Final[Setting[float | None]] = Setting(
    name="quantum",
    read=readers.duration_s,
    metavar="TIME",
    default_told="so long that passing turns on takes 1 % of the time at most",
    help="How long a turn lasts, as 50ms or 2s, rounded up to whole steps; 0 is one step.",
)
GUARD: Final = Setting(
    name="guard",
    read=readers.guard_ratio,
    default="30%",
    metavar="PERCENT|off",
    help="Separate jobs that co-runners slow by more than this over the prediction; off leaves them.",
)
GUARD_AFTER: Final = Setting(
    name="guard_after",
    read=readers.duration_s,
    default="45s",
    metavar="TIME",
    help="For how long they must be, as 45s or 5m.",
)
MEMORY_FACTORS: Final = Setting(
    name="memory_factors",
    read=readers.memory_factors,
    default="1.1,1.05",
    metavar="P,TOTAL",
    help="Safety factors on measured GPU memory when a GPU is shared: on what a job holds between its steps, and "
    "on that so raised and what it needs within one.",
)
CORE_TUNER: Final = Setting(
    name="core_tuner",
    read=one_of(CoreTunerChoice),
    default=CoreTunerChoice.LINEAR,
    takes=CoreTunerChoice,
    help="Find how many cores each training job that asks for some needs while it runs; none waits for cores. Off: "
    "cores are as they were asked for.",
)
CORE_WINDOW: Final = Setting(
    name="core_window",
    read=readers.some_time_s,
    default="90s",
    metavar="TIME",
    help="How long it tries each number of cores, as 90s.",
)
CONTENTION: Final = Setting(
    name="contention",
    read=readers.some_time_or_off_s,
    default="10s",
    metavar="TIME|off",
    help="How often use of memory bandwidth is measured; jobs that slow training on the node are throttled.",
)

NAME: Final[Setting[str | None]] = Setting(
    name="name", read=text, default_told="the machine's name", help="Name of the node, unique."
)
URL: Final[Setting[str | None]] = Setting(
    name="url", read=text, variables=("COLANE_URL",), help="Where the scheduler is; of several, all, with commas."
)
DEVICES: Final[Setting[str | None]] = Setting(
    name="devices",
    read=text,
    metavar="gpu|cpu:N[:MEMORY]",
    default_told="the GPUs; without any, all cores as one device",
    help="Devices that jobs run on: cpu:2:4GB is two devices of half the cores and 4 GB each.",
)
MPS: Final = Setting(
    name="mps",
    read=one_of(Mps),
    default=Mps.AUTO,
    takes=Mps,
    help="NVIDIA MPS: auto for jobs that ask for it, on for every job on one GPU, or off.",
)
POOL: Final = Setting(name="pool", read=text, default=DEFAULT_POOL, help="Only jobs of this pool run here.")
TOPOLOGY: Final[Setting[str | None]] = Setting(
    name="topology",
    read=text,
    metavar="FILE|PRESET",
    default_told="what is found",
    help="How the devices are connected, as colane topo --import takes it; cpu devices may then share cores.",
)
HOST_BANDWIDTH: Final[Setting[int | None]] = Setting(
    name="host_bandwidth",
    read=readers.bandwidth_bytes_per_s,
    metavar="RATE",
    default_told="not bounded",
    help="Bandwidth to host memory that jobs may book here, as 150GB/s.",
)
AGENT_PORT: Final = _port(0)
AGENT_STATE: Final[Setting[Path | None]] = Setting(
    name="state",
    read=path,
    takes=Path,
    default_told="agent in the scheduler's",
    help="Where jobs' logs and records are kept.",
)
STOP_JOBS: Final = Setting(
    name="stop_jobs",
    read=switch,
    default=False,
    takes=bool,
    help="Stop the jobs with the agent; else they run on for the next one.",
)
REPLACED: Final = Setting(
    name="replaced",
    read=switch,
    default=False,
    takes=bool,
    help="Another node takes this one's place when it is gone (a pilot, a spot instance): its jobs do not wait for it, "
    "also where it is alone in its pool.",
)
DRAIN_ON_STOP: Final[Setting[float | None]] = Setting(
    name="drain_on_stop",
    read=readers.duration_s,
    metavar="TIME",
    default_told="leaves the jobs",
    help="At SIGTERM (a machine's shutdown) drain the node first: its jobs have so long (60s) to save and leave.",
)
NOTICE_FILE: Final[Setting[Path | None]] = Setting(
    name="notice_file",
    read=path,
    takes=Path,
    default_told=False,
    help="The node is drained while this file is there: when the machine goes (120, or 2026-11-22T16:00:00Z) and "
    "why, both may be left out.",
)
NOTICE_COMMAND: Final = Setting(
    name="notice_command",
    read=text,
    default="",
    metavar="COMMAND",
    default_told=False,
    help="The node is drained while this ends with 0, asked every 5 s (a cloud's notice to a spot instance); it "
    "prints what --notice-file would hold.",
)


def _hook(name: str, when: str) -> Setting[Path | None]:
    help_text = f"Program that is run as the agent's user {when} (docs/how-to/nodes.md)."
    return Setting(name=name, read=path, takes=Path, metavar="FILE", default_told="none", help=help_text)


PROLOG: Final = _hook("prolog", "before a job starts here; one that fails drains the node")
EPILOG: Final = _hook("epilog", "after a job has ended here; one that fails drains the node")
HEALTH_CHECK: Final = _hook("health_check", "every minute; the node is drained while it fails")
HOOK_LIMIT: Final = Setting(
    name="hook_limit",
    read=readers.some_time_s,
    default="5m",
    metavar="TIME",
    help="How long the prolog, the epilog and the health check may take each; then they are killed, and have failed.",
)
HEARTBEAT: Final = Setting(
    name="heartbeat",
    read=number(float, 0.05),
    default=2.0,
    takes=float,
    at_least=0.05,
    help="Seconds between two reports of progress.",
)
GRACE: Final = Setting(
    name="grace",
    read=readers.duration_s,
    default="10s",
    metavar="TIME",
    help="What a job's processes have to end after SIGTERM, however it ends (cancelled, over time, drained, "
    "stopped for others, with the agent); then SIGKILL. The time to save (--checkpoint-lead) comes before it.",
)
YIELD_BOUND: Final = Setting(
    name="yield_bound",
    read=readers.some_time_s,
    default="30s",
    metavar="TIME",
    help="A job that is asked for its turn and reaches no step boundary for so long is left out of the turns.",
)
OTHERS: Final = Setting(
    name="others",
    read=one_of(LoadByOthers),
    default=LoadByOthers.RESPECT,
    takes=LoadByOthers,
    variables=("COLANE_OTHERS",),
    help="Work of others on the devices: respect it (nothing is learnt from jobs next to it, no sharing by "
    "prediction, quiet devices first), or ignore it.",
)

KEEP_JOBS: Final = Setting(
    name="keep_jobs",
    read=switch,
    default=False,
    takes=bool,
    help="Let running jobs go on at the end; the next 'up' takes them over.",
)

ENGINE: Final = Setting(
    name="engine",
    read=one_of(EngineName),
    default=EngineName.LOCAL,
    takes=EngineName,
    help="Where agents run: on this machine (local), in pilots that Slurm starts (docs/how-to/pilots.md), or on Ray's "
    "nodes (docs/how-to/ray.md).",
)
ADDRESS: Final[Setting[str | None]] = Setting(
    name="address",
    read=readers.address,
    metavar="HOST:PORT",
    default_told="none, and it must be given",
    help="Ray: where its head listens.",
)
GPUS_PER_NODE: Final[Setting[int | None]] = Setting(
    name="gpus_per_node",
    read=number(int, 0, None),
    takes=int,
    at_least=0,
    default_told="all of the node's",
    help="Ray: how many GPUs are booked on each node.",
)
PILOTS: Final = Setting(
    name="pilots",
    read=number(int, 1, PILOTS_MAX),
    default=1,
    takes=int,
    at_least=1,
    at_most=PILOTS_MAX,
    letter="N",
    help="Slurm: how many pilots there are to be, each on one node.",
)
GRES: Final[Setting[str | None]] = Setting(
    name="gres", read=text, metavar="GRES", default_told="none", help="Slurm: what each pilot holds: gpu:4."
)
PILOT_TIME: Final[Setting[float | None]] = Setting(
    name="pilot_time",
    read=readers.duration_s,
    metavar="TIME",
    letter="t",
    default_told="none, and it must be given",
    help="Slurm: how long each pilot may run: 8:00:00, 8h.",
)
PILOT_LEAD: Final = Setting(
    name="pilot_lead",
    read=readers.duration_s,
    default="5m",
    metavar="TIME",
    help="Slurm: how long before its end a pilot is drained, for jobs to save and leave.",
)
PARTITION: Final[Setting[str | None]] = Setting(
    name="partition", read=text, default_told="Slurm's default", help="Slurm: the partition of the pilots."
)
SLURM_OPTIONS: Final[Setting[str | None]] = Setting(
    name="slurm_options",
    read=text,
    metavar="WORDS",
    default_told="none",
    help="Slurm: further options of sbatch for each pilot: '--account=vision --cpus-per-task=32 --mem=200G'.",
)

SERVER: Final = Section(
    "server",
    (
        POLICY, MAX_WAIT, POLICY_BUDGET, HOST, SERVER_PORT, SERVER_STATE, STORE, STORE_PASSWORD_FILE, STANDBY,
        LEADER_LEASE, OWN_URL, TOKEN_FILE, KEEP_FINISHED, TLS_CERT, TLS_KEY, LEASE, LIMITS, SEE, IDLE_AFTER, IDLE_RULE,
        NO_NIGHTLY, METRICS_NAMES, NOTIFY, SHARE_BETWEEN, TURNS, QUANTUM, GUARD, GUARD_AFTER, MEMORY_FACTORS,
        CORE_TUNER, CORE_WINDOW, CONTENTION,
    ),
)  # fmt: skip
HOOKS: Final = (PROLOG, EPILOG, HEALTH_CHECK, HOOK_LIMIT)
AGENT: Final = Section(
    "agent",
    (
        NAME, URL, DEVICES, MPS, POOL, TOPOLOGY, HOST_BANDWIDTH, HOST, AGENT_PORT, AGENT_STATE, TOKEN_FILE, TLS_CERT,
        TLS_KEY, STOP_JOBS, REPLACED, DRAIN_ON_STOP, NOTICE_FILE, NOTICE_COMMAND, *HOOKS, HEARTBEAT, GRACE, YIELD_BOUND,
        OTHERS,
    ),
)  # fmt: skip
AGENTS: Final = Section("agents", (MPS, DRAIN_ON_STOP, NOTICE_COMMAND, *HOOKS, HEARTBEAT, GRACE, YIELD_BOUND, OTHERS))
"""What the scheduler tells all agents, for those of their settings that are given nowhere else."""
UP: Final = Section(
    "up",
    (
        ENGINE, PILOTS, GRES, PILOT_TIME, PILOT_LEAD, PARTITION, SLURM_OPTIONS, ADDRESS, GPUS_PER_NODE, KEEP_JOBS,
    ),
)  # fmt: skip
CLIENT: Final = Section("client", (URL, CLIENT_TOKEN_FILE, CA_FILE))
SECTIONS: Final = (SERVER, AGENTS, AGENT, UP, CLIENT)


def tuning(values: Values) -> TuningConfig | None:
    """Return how cores of training jobs are tuned; None where they are not."""
    choice = values[CORE_TUNER]
    return None if choice is CoreTunerChoice.OFF else TuningConfig.of(TunerName(choice.value), values[CORE_WINDOW])


# -- Settings of one service that must fit those of another.

REPORTS_PER_LEASE_MIN: Final = 3
"""Of a lease jobs have up to a third to end: of fewer reports in it, one that is late would end them."""


def judge_heartbeat(agent: Values, lease_s: float) -> None:
    """Refuse reports so seldom that a node's lease would run out between two of them.

    Args:
        agent: Settings of agents.
        lease_s: The scheduler's.

    Raises:
        SettingError: They do not fit.
    """
    most_s = lease_s / REPORTS_PER_LEASE_MIN
    if agent[HEARTBEAT] > most_s:
        raise agent.fault(
            HEARTBEAT,
            f"must be at most {most_s:.3g} s, a third of the scheduler's lease of {lease_s:g} s, "
            f"got {agent[HEARTBEAT]:g}: report more often, or start the scheduler with a longer --lease",
        )
