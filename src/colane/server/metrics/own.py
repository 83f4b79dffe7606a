"""Colane's own family: the cluster, its devices, its jobs, and the scheduler's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from colane.api.seeing import OverviewAnswer
from colane.facts.job import waiting
from colane.facts.node import NodeWord, node_word
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Node
from colane.model.job import Job, JobId
from colane.model.versions import own_version
from colane.server.ground.sight import Sight
from colane.server.metrics.text import MetricKind, MetricText, RatioTexts, label_value, labels_text
from colane.server.parts import Parts
from colane.server.views.holders import Holders
from colane.server.views.listing import facts_of
from colane.server.views.overview import OverviewMaker

JOBS_MAX: Final = 1_000  # running jobs with series of their own, the youngest; all others are counted

USERS_MAX: Final = 200
GAUGE, COUNTER = MetricKind.GAUGE, MetricKind.COUNTER


class NodeTexts(NamedTuple):
    """What the lines of a node's devices have in common from one answer to the next."""

    node: Node  # as it is described; another description has other texts
    indexes: tuple[int, ...]  # of its devices, in order
    labels: tuple[str, ...]  # of each device, with the space behind them
    formats: tuple[str, ...]  # of each of `SAMPLED`, the lines of all its devices, with `%s` for the values
    jobs: str  # the same of how many jobs are on them
    idle: str  # that with no job on any
    fixed: tuple[str, str]  # lines of what its description says: memory, and whether each device works


class DeviceLabels:
    """Texts of devices and labels of jobs, made once for each description of a node, and for each place of a job."""

    def __init__(self) -> None:
        self._known: dict[str, NodeTexts] = {}
        self._jobs: dict[JobId, tuple[str, str]] = {}

    def of(self, node: Node) -> NodeTexts:
        """Of a node."""
        known = self._known.get(node.name)
        if known is None or known.node is not node:
            known = self._known[node.name] = _texts(node)
        return known

    def of_job(self, job: Job) -> str:
        """Labels of a job that has a place."""
        node = "" if job.placement is None else job.placement.node
        known = self._jobs.get(job.id)
        if known is None or known[0] != node:
            labels = labels_text({"job": job.said, "name": job.spec.name, "user": job.spec.user, "node": node})
            known = self._jobs[job.id] = node, labels
        return known[1]

    def keep(self, nodes: Mapping[str, object], jobs: Mapping[JobId, object]) -> None:
        """Forget all other nodes and jobs."""
        for name in self._known.keys() - nodes.keys():
            del self._known[name]
        for job in self._jobs.keys() - jobs.keys():
            del self._jobs[job]


SAMPLED: Final = ("busy_ratio", "memory_used_bytes", "power_watts", "temperature_celsius", "xid", "throttled")
FEW_DIFFERENT: Final = frozenset({"busy_ratio", "temperature_celsius"})
_PLACES: Final[Mapping[str, str]] = {"power_watts": "%.1f"}
"""How a value is written where it is not as it is: no sensor tells of less than a tenth of a watt."""
_VALUES: Final = attrgetter("index", "busy_ratio", "used_bytes", "power_w", "temperature_c", "xid", "throttle")
"""In the order of `SAMPLED`, the index before them."""


def _texts(node: Node) -> NodeTexts:
    name = label_value(node.name)
    gpus = node.gpus
    labels = tuple([f'{{node="{name}",gpu="{gpu.index}",type="{label_value(gpu.type)}"}} ' for gpu in gpus])
    escaped = [text.replace("%", "%%") for text in labels]

    def lines(of: str, texts: Iterable[str], values: Iterable[object]) -> str:
        return "\n".join(f"colane_device_{of}{text}{value}" for text, value in zip(texts, values, strict=True))

    places = ["%s"] * len(gpus)
    fixed = (
        lines("memory_bytes", labels, [gpu.memory_bytes for gpu in gpus]),
        lines("healthy", labels, [1 if gpu.healthy else 0 for gpu in gpus]),
    )
    formats = tuple([lines(of, escaped, [_PLACES.get(of, "%s")] * len(gpus)) for of in SAMPLED])
    jobs, idle = lines("jobs", escaped, places), lines("jobs", labels, [0] * len(gpus))
    return NodeTexts(node, tuple([gpu.index for gpu in gpus]), labels, formats, jobs, idle, fixed)


def write(
    text: MetricText,
    overviews: OverviewMaker,
    known: DeviceLabels,
    sight: Sight,
    overview: OverviewAnswer,
    holders: Holders,
) -> None:
    """Write the family as a caller may see it; `holders` are all jobs with places."""
    parts = overviews.parts
    _cluster(text, parts, overview)
    _devices(text, parts, known, holders)
    held = list(zip(holders.placed, holders.devices, strict=True))
    wait = holders.waiting
    if not sight.is_whole:
        held = [(job, devices) for job, devices in held if sight.has(job.spec.user)]
        wait = [job for job in wait if sight.has(job.spec.user)]
    _users(text, held, wait)
    _jobs(text, overviews, known, [job for job, _ in held], overview)
    _scheduler(text, parts)


def _cluster(text: MetricText, parts: Parts, overview: OverviewAnswer) -> None:
    counts = ((state, count) for state, count in overview["devices"].items() if state != "total")
    text.family(
        "colane_devices", GAUGE, "Devices by what they do.",
        ((f'{{state="{state}"}}', float(str(count))) for state, count in counts),
    )  # fmt: skip
    nodes = Counter(node_word(one.node, is_lost=one.lost, has_jobs=True) for one in parts.read_model.nodes.values())
    states = (NodeWord.UP, NodeWord.DRAINING, NodeWord.TAKEN_OUT, NodeWord.LOST, NodeWord.NO_AGENT)
    text.family(
        "colane_nodes", GAUGE, "Nodes by state.", ((f'{{state="{state}"}}', nodes.get(state, 0)) for state in states)
    )
    text.family("colane_running_jobs", GAUGE, "Jobs that hold a place.", [("", overview["running"])])
    text.family("colane_waiting_jobs", GAUGE, "Jobs that wait.", [("", overview["waiting"])])
    text.family(
        "colane_waiting_jobs_by_reason", GAUGE, "Jobs that wait, by reason.",
        ((f'{{why="{one["why"]}"}}', one["count"]) for one in overview["why_waiting"]),
    )  # fmt: skip
    looks = Counter((one["level"], one["code"]) for one in overview["look"])
    text.family(
        "colane_needs_look", GAUGE, "Things that need a look.",
        ((f'{{level="{level}",code="{code}"}}', count) for (level, code), count in sorted(looks.items())),
    )  # fmt: skip
    text.family("colane_idle_jobs", GAUGE, "Jobs that hold devices and use none.", [("", len(overview["idle"]))])
    text.family("colane_sharing_devices", GAUGE, "Devices with several jobs.", [("", overview["sharing_devices"])])
    text.family(
        "colane_sharing_gain_ratio", GAUGE, "What jobs that share a device get done there together, of one alone.",
        [("", overview["sharing_gain"])],
    )  # fmt: skip


DEVICE_VALUES: Final[Mapping[str, str]] = {
    "busy_ratio": "Part of the time in which any kernel ran.",
    "memory_used_bytes": "Memory held by all processes.",
    "memory_bytes": "Memory that it has.",
    "power_watts": "Power drawn.",
    "temperature_celsius": "Temperature.",
    "jobs": "Jobs on it.",
    "healthy": "Whether it works.",
    "xid": "Last error that its driver told of.",
    "throttled": "Whether something holds its clocks down.",
}


def _devices(text: MetricText, parts: Parts, labels: DeviceLabels, holders: Holders) -> None:
    """Write all devices of nodes that are not lost: the bulk of all lines, so a node's at once where all is known."""
    now_s, texts_of, nodes = parts.driver.now(), labels.of, parts.read_model.nodes
    labels.keep(nodes, parts.read_model.jobs)
    columns: dict[str, list[str]] = {name: [] for name in DEVICE_VALUES}
    sampled = [columns[name] for name in SAMPLED]
    for name, record in nodes.items():
        if record.lost or not record.node.gpus:
            continue
        known = texts_of(record.node)
        if uses := parts.samples.devices_now(name, now_s):
            _sampled(sampled, known, uses)
        columns["memory_bytes"].append(known.fixed[0])
        columns["healthy"].append(known.fixed[1])
        on = holders.on.get(name)
        columns["jobs"].append(
            known.jobs % tuple([len(on[at]) if at in on else 0 for at in known.indexes]) if on else known.idle
        )
    for own, about in DEVICE_VALUES.items():
        text.lines(f"colane_device_{own}", GAUGE, about, columns[own])


_RATIOS: Final = RatioTexts()
_HAS_FEW: Final = tuple([name in FEW_DIFFERENT for name in SAMPLED])


def _sampled(columns: Sequence[list[str]], known: NodeTexts, uses: Iterable[DeviceUsage]) -> None:
    """Add the lines of what was seen of a node's devices; unknown values have none."""
    indexes, *values = zip(*map(_VALUES, uses), strict=True)
    values[-1] = tuple([None if words is None else 1 if words else 0 for words in values[-1]])
    if indexes == known.indexes:
        for column, text, row, has_few in zip(columns, known.formats, values, _HAS_FEW, strict=True):
            if None not in row:
                column.append(text % (tuple(map(_RATIOS.__getitem__, row)) if has_few else row))
            elif row.count(None) < len(row):
                pairs = zip(text.split("\n"), row, strict=True)
                column += [line % (value,) for line, value in pairs if value is not None]
        return
    places = {index: place for place, index in enumerate(known.indexes)}
    for column, text, row in zip(columns, known.formats, values, strict=True):
        lines = text.split("\n")
        column += [
            lines[places[index]] % (value,)
            for index, value in sorted(zip(indexes, row, strict=True))
            if value is not None and index in places
        ]


def _users(text: MetricText, held: Iterable[tuple[Job, int]], queued: Iterable[Job]) -> None:
    """Count jobs by user, and what they hold: `held` has each running job with its number of devices."""
    running, wait = dict[str, int](), Counter[str]()
    devices = dict[str, int]()
    for job in queued:
        wait[job.spec.user] += waiting(job)
    for job, count in held:
        user = job.spec.user
        if user in running:
            running[user] += 1
            devices[user] += count
        else:
            running[user], devices[user] = 1, count
    most = sorted({*running, *wait}, key=lambda user: (-devices.get(user, 0), -wait[user], user))[:USERS_MAX]
    labels = {user: labels_text({"user": user}) for user in most}
    for name, about, counts in (
        ("running_jobs", "Jobs of a user that hold a place.", running),
        ("waiting_jobs", "Jobs of a user that wait.", wait),
        ("devices", "Devices that a user's jobs hold.", devices),
    ):
        text.family(f"colane_user_{name}", GAUGE, about, [(labels[user], counts.get(user, 0)) for user in most])


# -- jobs

JOB_VALUES: Final[Mapping[str, str]] = {
    "devices": "Devices that it holds.",
    "busy_ratio": "Part of the time in which its own kernels ran, mean over its devices.",
    "device_memory_bytes": "Memory that it holds of its devices.",
    "cpu_cores": "Cores that it keeps busy.",
    "host_memory_bytes": "Host memory that its processes hold.",
    "steps_per_second": "Steps that it makes now, its waiting for turns included.",
    "left_seconds": "How long it will still run, where that is known.",
    "step_seconds": "Mean time of a step.",
    "latency_p50_seconds": "What half of its last answers took at most, waiting for its turn included.",
    "latency_p95_seconds": "The same of 95 %.",
    "latency_p99_seconds": "The same of 99 %.",
    "latency_objective_seconds": "How long an answer may take.",
    "speed_ratio": "Its speed, of that alone as it asked to run.",
    "slowdown_predicted": "Step time with its co-runners over that alone, as predicted.",
    "slowdown_actual": "Step time with its co-runners over that alone, as seen.",
    "share_asked_ratio": "Part of its lane's time that it asks for.",
    "share_got_ratio": "Part of the time it wanted its lane in which it had it.",
    "switch_seconds": "Mean time from one turn to the next in its lane.",
    "cores_granted": "Cores that it has.",
    "cores_useful": "Fewest cores with which it is as fast as with any that was tried.",
    "checkpoint_age_seconds": "How long ago it saved its state.",
    "lost_seconds": "Run time whose steps have to be repeated, or were.",
    "idle_seconds": "For how long it has used nothing, once that is long.",
}


def _jobs(
    text: MetricText, overviews: OverviewMaker, known: DeviceLabels, jobs: Sequence[Job], overview: OverviewAnswer
) -> None:
    placed = sorted(jobs, key=attrgetter("id"), reverse=True)
    idle = {one["job"]: one["idle_s"] for one in overview["idle"]}
    parts, now_s, labels_of = overviews.parts, overviews.parts.driver.now(), known.of_job
    told = [(labels_of(job), _job_values(overviews, job, idle.get(job.id), now_s)) for job in placed[:JOBS_MAX]]
    for place, (name, about) in enumerate(JOB_VALUES.items()):
        text.family(f"colane_job_{name}", GAUGE, about, [(labels, values[place]) for labels, values in told])
    shown = zip(told, placed, strict=False)
    steps = [(labels, _steps(parts, job)) for (labels, _), job in shown]
    text.family("colane_job_steps_total", COUNTER, "Steps that its present attempt has made.", steps)
    left_out = max(0, len(placed) - JOBS_MAX)
    text.family("colane_job_series_left_out", GAUGE, "Running jobs that have no series of their own.", [("", left_out)])


def _steps(parts: Parts, job: Job) -> float | None:
    progress = parts.driver.progress.get(job.id)
    return None if progress is None else float(progress.steps)


def _job_values(overviews: OverviewMaker, job: Job, idle_s: float | None, now_s: float) -> tuple[float | None, ...]:
    """In the order of `JOB_VALUES`."""
    parts = overviews.parts
    use, progress = parts.samples.job_now(job.id, now_s), parts.driver.progress.get(job.id)
    pacing = overviews.pacing(job.id)
    facts, runners = facts_of(parts.driver, job, pacing), None if pacing is None else pacing.co_runners
    cores = 0 if job.placement is None else len(job.placement.cores)
    return (
        len(job.gpus_held),
        *((None,) * 4 if use is None else (use.busy_ratio, use.device_bytes, use.cpu_cores, use.host_bytes)),
        facts["now_steps_per_s"],
        facts["left_s"],
        *((None,) * 4 if progress is None else (
            progress.step_mean_s, progress.latency_p50_s, progress.latency_p95_s, progress.latency_p99_s,
        )),
        job.effective.latency_s,
        facts["speed_ratio"],
        None if runners is None else runners.predicted,
        None if runners is None else runners.measured,
        facts["share_asked_ratio"],
        facts["share_got_ratio"],
        None if progress is None else progress.turn_handoff_s,
        cores,
        None if pacing is None else pacing.cores_useful,
        facts["saved_ago_s"],
        job.totals.lost_s,
        idle_s,
    )  # fmt: skip


# -- the scheduler itself


def _scheduler(text: MetricText, parts: Parts) -> None:
    meters, driver = parts.driver.meters, parts.driver
    labels = labels_text({"version": own_version(), "policy": parts.policy})
    text.family("colane_scheduler_info", GAUGE, "Version and policy.", [(labels, 1)])
    text.family("colane_store_writable", GAUGE, "Whether the store can be written.", [("", driver.problem is None)])
    text.family("colane_start_time_seconds", GAUGE, "Start of the scheduler, unix time.", [("", parts.started_s)])
    text.histogram("colane_decision_seconds", "What deciding took, of each turn.", meters.decisions)
    text.histogram("colane_store_commit_seconds", "What a commit took.", meters.commits)
    ended = [(f'{{state="{state}"}}', float(count)) for state, count in sorted(meters.ended.items())]
    text.family("colane_jobs_ended_total", COUNTER, "Jobs that have ended since the scheduler's start.", ended)
    text.family("colane_jobs_submitted_total", COUNTER, "Jobs taken in since then.", [("", meters.submitted)])
    text.family(
        "colane_attempts_total", COUNTER, "Attempts that were given a place since then.", [("", meters.started)]
    )
    text.family("colane_events_total", COUNTER, "Changes recorded in the store.", [("", parts.feed.last_number)])
    text.family(
        "colane_faults_total", COUNTER, "Requests that met a fault of the scheduler.", [("", driver.faults.met)]
    )
