"""`colane export`: the jobs of a time as a trace, with what was measured of them, to simulate them again."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError, writing
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused
from colane.client.told import in_force
from colane.core.usage import month_of
from colane.model.hardware import CPU_DEVICE_TYPE
from colane.model.phases import ENDED, LEAVING, JobState
from colane.model.reason import Why
from colane.model.words import count, percent

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.api.nodes import NodeObject, ReservationObject
    from colane.client.client import Client, Event
    from colane.lab.simulate.request import KeptRun, Request
    from colane.lab.traces.tables.measured import MeasuredTable, Overhead
    from colane.lab.traces.workload import TraceJob, Workload
    from colane.model.profile import ProfileKey


class DeviceUse(NamedTuple):
    """One job on a GPU."""

    start_s: float
    end_s: float
    job: int
    key: ProfileKey


class RunOverhead(NamedTuple):
    """What one run took besides its steps."""

    overhead_s: float  # before the first, and after the last
    slowdown: float  # of steps of its kind with the co-runners it had before the first, mean of that time; 1 on a GPU


def overhead_s(item: JobObject) -> float | None:
    """Time a run took besides its steps, before the first began and after the last ended; None without steps."""
    seen = _stepping(item)
    if seen is None:
        return None
    start_s, end_s = run_of(item)
    return max(0.0, end_s - start_s - seen.step_s * seen.steps)


class Stepping(NamedTuple):
    """The steps of a run."""

    first_s: float  # when the first was over
    last_s: float
    steps: int
    step_s: float  # mean


def _stepping(item: JobObject) -> Stepping | None:
    sample = item["progress"] or {}
    first_s, last_s, steps = sample.get("first_step_s"), sample.get("last_step_s"), sample.get("steps") or 0
    if first_s is None or last_s is None or steps < 2:
        return None
    return Stepping(first_s, last_s, steps, (last_s - first_s) / (steps - 1))


def run_of(item: JobObject) -> tuple[float, float]:
    """When a run that has ended began and ended; of one that has both, as all here have."""
    start_s, end_s = item["start_s"], item["end_s"]
    if start_s is None or end_s is None:
        raise ValueError(f"job {item['id']} has not run and ended")
    return start_s, end_s


def device_uses(items: Sequence[JobObject], gpu_types: Mapping[str, str]) -> dict[str, list[DeviceUse]]:
    """Which jobs were on each GPU, and when."""
    found: dict[str, list[DeviceUse]] = {}
    for item in items:
        for gpu in item["gpus"]:
            use = DeviceUse(*run_of(item), item["id"], _key(item, gpu_types.get(gpu, "")))
            found.setdefault(gpu, []).append(use)
    return found


def run_overheads(
    items: Sequence[JobObject], there: Mapping[str, Sequence[DeviceUse]], table: MeasuredTable
) -> Iterator[RunOverhead]:
    """Of the runs that made steps, by the speeds this table has."""
    for item in items:
        found_s, sample = overhead_s(item), item["progress"]
        if found_s is None or sample is None:
            continue
        own = [(mine, there[gpu]) for gpu in item["gpus"] for mine in there[gpu] if mine.job == item["id"]]
        until_s = sample["first_step_s"] or 0.0
        slowed = [_slowdown(m, until_s, all_, table) for m, all_ in own if m.key.gpu_type == CPU_DEVICE_TYPE]
        yield RunOverhead(found_s, max(slowed, default=1.0))


def fit(known: Sequence[RunOverhead]) -> Overhead:
    """The line through what they took over how much co-runners slowed steps meanwhile, by least squares.

    Where it grows as steps do it is all work, where it does not grow there is none. All is, where slowdowns are equal.
    """
    from colane.lab.traces.tables.measured import Overhead  # noqa: PLC0415 - imported late

    if not known:
        return Overhead(0.0, 1.0)
    slowdown, mean_s = fmean(one.slowdown for one in known), fmean(one.overhead_s for one in known)
    spread = sum((one.slowdown - slowdown) ** 2 for one in known)
    slope_s = sum((one.slowdown - slowdown) * (one.overhead_s - mean_s) for one in known)
    all_work_s = mean_s / slowdown
    work_s = all_work_s if spread < SPREAD_MIN else max(0.0, min(slope_s / spread, all_work_s))
    alone_s = mean_s - work_s * (slowdown - 1)
    return Overhead(alone_s, min(1.0, work_s / alone_s) if alone_s > 0 else 1.0)


SPREAD_MIN = 0.01
"""Sum of squares below which the slowdowns count as equal."""


def _key(item: JobObject, gpu_type: str) -> ProfileKey:
    from colane.model.profile import ProfileKey  # noqa: PLC0415 - imported late

    return ProfileKey(item["family"], item["batch_size"], item["needs"]["gpus"], gpu_type)


def _slowdown(mine: DeviceUse, until_s: float, there: Sequence[DeviceUse], table: MeasuredTable) -> float:
    """Mean over the time of its launch: as much work as gets done in it alone takes that much less."""
    if until_s <= mine.start_s:
        return 1.0
    stays = _stays(mine, mine.start_s, until_s, there)
    return (until_s - mine.start_s) / sum(span_s / _beside(mine.key, beside, table) for span_s, beside in stays)


def _stays(
    mine: DeviceUse, since_s: float, until_s: float, there: Sequence[DeviceUse]
) -> Iterator[tuple[float, tuple[ProfileKey, ...]]]:
    """How long a job was beside which kinds, one after another."""
    others = [other for other in there if other.job != mine.job]
    inner = [cut for other in others for cut in (other.start_s, other.end_s) if since_s < cut < until_s]
    for a, b in pairwise(sorted({since_s, until_s, *inner})):
        beside = [other.key for other in others if other.start_s <= a < other.end_s]
        yield b - a, tuple(sorted(beside, key=str))


def with_seen(
    table: MeasuredTable, ran: Sequence[JobObject], there: Mapping[str, Sequence[DeviceUse]]
) -> MeasuredTable:
    """Return the table with what runs show of kinds and sets that were not measured, as where others used the cores.

    A kind alone makes its steps as its runs did that had least of co-runners; a set slows it as its runs were in it.
    """
    from colane.lab.traces.tables.measured import MeasuredJob  # noqa: PLC0415 - imported late

    jobs, slowdowns = dict(table.jobs), dict(table.slowdowns)
    runs: dict[ProfileKey, list[tuple[float, float, JobObject]]] = {}
    seen = [(item, of, mine, there[gpu]) for item in ran if (of := _stepping(item)) is not None
            for gpu in item["gpus"][:1] for mine in there[gpu] if mine.job == item["id"]]  # fmt: skip
    for item, of, mine, _ in seen:
        runs.setdefault(mine.key, []).append((_shared_ratio(item, there), of.step_s, item))
    for key in runs.keys() - jobs.keys():
        shared_max = max(ALONE_RATIO_MAX, min(ratio for ratio, _, _ in runs[key]))
        busy = [
            used for _, _, item in runs[key] if (used := (item["progress"] or {}).get("occupancy_ratio")) is not None
        ]
        alone_s = median(step_s for ratio, step_s, _ in runs[key] if ratio <= shared_max)
        jobs[key] = MeasuredJob(alone_s, None, fmean(busy) if busy else None)
    sums: dict[tuple[ProfileKey, tuple[ProfileKey, ...]], list[tuple[float, float]]] = {}
    for _, of, mine, all_ in seen:
        for span_s, beside in _stays(mine, of.first_s, of.last_s, all_):
            if beside and (table.slowdown(mine.key, beside) or table.estimate(mine.key, beside)) is None:
                sums.setdefault((mine.key, beside), []).append((span_s, span_s * of.step_s / jobs[mine.key].step_s))
    for which, parts in sums.items():
        slowdowns[which] = max(1.0, sum(part for _, part in parts) / sum(span_s for span_s, _ in parts))
    return replace(table, jobs=jobs, slowdowns=slowdowns)


def _beside(key: ProfileKey, others: Sequence[ProfileKey], table: MeasuredTable) -> float:
    """As measured, else as estimated; else each of k has a k-th of the device."""
    if not others:
        return 1.0
    found = table.slowdown(key, others) or table.estimate(key, others)
    return max(1.0, found) if found is not None else 1.0 + len(others)


class Exported(NamedTuple):
    """The files, how many jobs there are in them, how many were left out, and how many of those there had not ended."""

    trace: Path
    measured: Path
    cluster: Path
    jobs: int
    left_out: int
    open: int = 0
    others_ratio: float | None = None  # of the devices that its jobs had, used by others; None where none tells


class TimeWindow(NamedTuple):
    """From when to when jobs are taken, in unix time: those that waited or ran meanwhile."""

    since_s: float = 0.0  # of a job that ran by then, what was left of it is taken
    # of a job that had not ended by then, all that is known now; 0 takes only those that have ended
    until_s: float = 0.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export", epilog="Example: [bold]colane export --out last-week[/bold]")(export)


def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the files.")] = Path("colane-export"),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME=VALUE", help="Only jobs with this label.")
    ] = None,
    since: Since = None,
    until: Until = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="Keep in one file how all stands now, for simulate --from."),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Write finished jobs as a trace, with measured profiles and the nodes, to simulate what would have been.

    With --state what runs, is parked, waits, is held and drained, what is believed and the limits are written instead.
    With --since also those that wait or run: of a job that ran by then what was left, and of one that has not ended
    what it has had and, where that is known, what is left; those cancelled while they waited, with when; which nodes
    were drained, lost, back or reserved; and which limits held, with what was used of budgets. Other jobs that ended
    without a start are left out and counted.
    """
    wanted, window = jobs.parse_labels(only, "--only"), parse_window(since, until, time.time())
    with jobs.client() as scheduler:
        if state is not None:
            kept = export_state(scheduler, state)
            output.say(f"{count(len(kept.workload.jobs), 'job')} as they stand: colane simulate --from {state}")
            return
        made = export_jobs(scheduler, wanted, out, window)
    if as_json:
        output.print_json({name: str(v) if isinstance(v, Path) else v for name, v in made._asdict().items()})
        return
    output.say(
        f"{count(made.jobs, 'job')} exported"
        + (f", {made.left_out} that never started left out" if made.left_out else "")
    )
    if made.others_ratio:
        used = f"{percent(made.others_ratio)} of their devices while they ran"
        output.say(f"others used {used}: their lengths and speeds are as they were beside them")
    output.say(f"simulate them: colane simulate -c {made.cluster} -t {made.trace} --measured {made.measured} -p fifo")


def export_state(scheduler: Client, path: Path) -> KeptRun:
    """Ask a scheduler how all stands, and write it. Raises FailureError: there are no jobs, or it cannot be written."""
    from colane.api import states  # noqa: PLC0415 - imported late
    from colane.lab.simulate.request import KeptRun, load  # noqa: PLC0415
    from colane.lab.traces.tables import measured  # noqa: PLC0415
    from colane.model.job import JobId  # noqa: PLC0415

    with TemporaryDirectory(prefix="colane-state-") as folder:
        now_s = time.time()
        made = export_jobs(scheduler, {}, Path(folder), TimeWindow(0.0, now_s), now_s)
        try:
            told = scheduler.state()
        except Refused as refused:
            if refused.status != 404:
                raise
            raise FailureError("the scheduler is older and tells no state: upgrade it, or say --since") from refused
        loaded, table = load(request_of(Path(folder)), 0), measured.read(made.measured)
    live: states.LiveState = states.read(told)
    named = {f"job-{one.id}": one for one in live.state.jobs.values()}
    traced = [
        replace(
            job,
            id=JobId(one.id),
            submit_s=one.submit_s,
            spec=replace(job.spec, user=one.spec.user, nodes=one.spec.nodes),
        )
        for job in loaded.workload.jobs
        if (one := named.get(job.spec.name)) is not None
    ]
    workload = replace(loaded.workload, jobs=tuple(sorted(traced, key=lambda job: (job.submit_s, job.id))))
    nodes, costs = tuple(known.node for known in live.state.nodes.values()), [*loaded.cluster.costs.values(), {}][0]
    cluster = replace(loaded.cluster, nodes=nodes, events=(), costs={node.name: costs for node in nodes})
    request = replace(request_of(path.parent), measured=table)
    kept = KeptRun(request, 0, scheduler.health()["policy"], cluster, workload, told)
    with writing(f"--state: {path}"):
        path.write_bytes(states.write(kept))
    return kept


def kept_in(option: str, path: Path) -> KeptRun:
    """Return the state that an option names. Raises MisuseError: it is none."""
    from colane.lab.simulate.request import KeptRun  # noqa: PLC0415 - imported late

    try:
        return KeptRun.read(path)
    except ValueError as error:
        raise MisuseError(f"{option}: {error}") from error


def request_of(folder: Path) -> Request:
    """What simulates an export."""
    from colane.lab.simulate.request import LIVE, Request  # noqa: PLC0415 - imported late

    return Request(
        cluster=str(folder / "cluster.yaml"), trace=str(folder / "trace.csv"), trace_format="colane",
        measured=folder / "measured.json", live=LIVE, multi_node=False,
    )  # fmt: skip


ALL_ENDED: Final = TimeWindow()

Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Jobs of this time, as 7d, yesterday or 2026-11-28T09:00.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", show_default="now", help="End of that time, likewise.")
]


def parse_window(since: str | None, until: str | None, now_s: float) -> TimeWindow:
    """Return the time that two options name.

    Raises:
        MisuseError: One of them names none, or it ends before it begins.
    """
    if since is None:
        if until is not None:
            raise MisuseError("--until: say --since, too")
        return TimeWindow()
    window = TimeWindow(_moment("--since", since, now_s), now_s if until is None else _moment("--until", until, now_s))
    if not window.since_s <= window.until_s <= now_s:
        raise MisuseError("--until: must be after --since, and not in the future")
    return window


def _moment(option: str, text: str, now_s: float) -> float:
    """A moment that has been: how long ago, yesterday's midnight, or a time of the calendar."""
    from colane.model.quantities import parse_duration_s  # noqa: PLC0415 - imported late

    midnight = datetime.fromtimestamp(now_s).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"now": 0.0, "today": now_s - midnight.timestamp()}
    days["yesterday"] = now_s - (midnight - timedelta(days=1)).timestamp()
    if text in days:
        return now_s - days[text]
    with suppress(ValueError):
        return now_s - parse_duration_s(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise MisuseError(f"{option}: must be as 7d, yesterday or 2026-11-28T09:00, got {text!r}") from None


def export_jobs(
    scheduler: Client, wanted: Mapping[str, str], out: Path, window: TimeWindow = ALL_ENDED, now_s: float | None = None
) -> Exported:
    """Ask a scheduler for jobs and write them.

    Raises:
        FailureError: There are none, or the directory cannot be written.
    """
    from colane.client.knowledge import read_measurements, read_profiles  # noqa: PLC0415 - imported late
    from colane.lab.traces.readers import colane_csv  # noqa: PLC0415
    from colane.lab.traces.tables import measured  # noqa: PLC0415

    now_s = time.time() if now_s is None else now_s
    items = [item for item in scheduler.finished_jobs(labels=wanted) if item.get("elements") is None]
    ran = [item for item in items if item["start_s"] is not None]
    live: list[JobObject] = [
        {**item, "end_s": None if item["start_s"] is None else now_s}  # as if those that run ended now
        for item in (scheduler.live_jobs() if window.until_s else ())
        if item.get("elements") is None and wanted.items() <= item["labels"].items()
    ]
    given_up = [item for item in items if item["start_s"] is None and item["state"] == "cancelled" and window.until_s]
    taken = [item for item in (*ran, *live, *given_up) if _is_within(item, window)]
    if not taken:
        when = " in this time" if window.until_s else ""
        raise FailureError(f"no job has run and ended yet{when}" + (" with these labels" if wanted else ""))
    profiles, nodes = read_profiles(scheduler), scheduler.nodes()
    types = {f"{node['name']}/{gpu['index']}": gpu["type"] for node in nodes for gpu in node["gpus"]}
    there = device_uses([*ran, *(item for item in live if item["start_s"] is not None)], types)
    table = measured.from_profiles(profiles.values(), read_measurements(scheduler))
    table = with_seen(table, ran, there)
    table = replace(table, overhead=fit(list(run_overheads(ran, there, table))))
    alone = frozenset(item["id"] for item in ran if _shared_ratio(item, there) <= ALONE_RATIO_MAX)
    left_out = sum(item["start_s"] is None and _is_within(item, window) for item in items) - sum(
        _is_within(item, window) for item in given_up
    )
    workload = _workload(taken, KnownOfRuns(table, types, alone, RunLengths(ran), window))
    made = Exported(
        out / "trace.csv", out / "measured.json", out / "cluster.yaml", len(taken), left_out,
        sum(job.outcome not in ENDED for job in workload.jobs), _others_ratio(ran),
    )  # fmt: skip
    with writing(f"--out: {out}"):
        out.mkdir(parents=True, exist_ok=True)
        colane_csv.write(workload, made.trace)
        measured.write(table, made.measured)
        import yaml  # noqa: PLC0415 - commands import what they need

        cluster = _cluster(nodes, ran, [item for item in ran if _is_within(item, window)])
        if window.until_s:
            lines = list(scheduler.events(0, scheduler.health()["events"]))
            events = list(node_events(lines, {node["name"]: node.get("reservations", ()) for node in nodes}, window))
            events += limit_events(lines, [item for item in (*ran, *live) if item["start_s"] is not None], window)
            cluster |= {"events": events} if events else {}
        made.cluster.write_text(yaml.safe_dump(cluster, sort_keys=False), encoding="utf-8")
    return made


def _others_ratio(ran: Iterable[JobObject]) -> float | None:
    """Mean part of their devices that others used, by the time that jobs had them."""
    known: list[tuple[float, float]] = []
    for item in ran:
        ratio, (start_s, end_s) = (item["progress"] or {}).get("others_ratio"), run_of(item)
        if ratio is not None:
            known.append((end_s - start_s, ratio))
    whole_s = sum([span_s for span_s, _ in known])
    return sum([span_s * ratio for span_s, ratio in known]) / whole_s if whole_s else None


def _is_within(item: JobObject, window: TimeWindow) -> bool:
    has_ended = item["state"] in ENDED and (item["end_s"] or inf) <= window.since_s
    return not has_ended and item["submit_s"] < (window.until_s or inf)


class RunLengths:
    """How long jobs ran that have ended: what one that has not may still take."""

    def __init__(self, ran: Sequence[JobObject]) -> None:
        self._all = sorted(end_s - start_s for start_s, end_s in map(run_of, ran))
        self._of: dict[str, list[float]] = {}
        for item in ran:
            start_s, end_s = run_of(item)
            self._of.setdefault(item["family"], []).append(end_s - start_s)

    def longer(self, family: str, age_s: float) -> list[float]:
        """Those of its family that ran for longer, ascending; else those of any; else twice what it has had."""
        for known in (sorted(self._of.get(family, ())), self._all):
            if longer := known[bisect_right(known, age_s) :]:
                return longer
        return [max(2 * age_s, UNKNOWN_S)]


UNKNOWN_S: Final = 3600.0
"""What a job takes where no job has ended yet."""


ALONE_RATIO_MAX = 0.01
"""Jobs that follow one another overlap by the time an end takes to be reported: so short an overlap counts as none."""


def _shared_ratio(item: JobObject, there: Mapping[str, Sequence[DeviceUse]]) -> float:
    """Part of its run in which a job had co-runners on its GPUs."""
    start_s, end_s = run_of(item)
    others = (use for gpu in item["gpus"] for use in there[gpu] if use.job != item["id"])
    overlap_s = sum(max(0.0, min(end_s, use.end_s) - max(start_s, use.start_s)) for use in others)
    return overlap_s / (end_s - start_s) if end_s > start_s else 0.0


class KnownOfRuns(NamedTuple):
    """What is known of jobs beside their records: speeds, types of GPUs, who ran alone, lengths, and the time."""

    table: MeasuredTable
    types: Mapping[str, str]
    alone: frozenset[int]
    lengths: RunLengths
    window: TimeWindow


def _workload(items: Sequence[JobObject], known: KnownOfRuns) -> Workload:
    from colane.lab.traces.workload import Workload  # noqa: PLC0415 - imported late

    since_s = known.window.since_s
    ordered = sorted(items, key=lambda item: (max(item["submit_s"], since_s), not _ran_by(item, since_s), item["id"]))
    first_s = since_s or ordered[0]["submit_s"]
    names = _names(ordered)
    made = tuple(_job(number, item, first_s, names, known) for number, item in enumerate(ordered, 1))
    return Workload(name="export", jobs=made)


def _ran_by(item: JobObject, at_s: float) -> bool:
    return item["start_s"] is not None and item["start_s"] < at_s


def _job(
    number: int, item: JobObject, first_s: float, names: Mapping[int, Sequence[str]], known: KnownOfRuns
) -> TraceJob:
    from colane.lab.traces.tables.measured import DONE_S, ENDED_S, HAD_S, OVERHEAD, RAN_ON, STARTED_S  # noqa: PLC0415
    from colane.lab.traces.workload import TraceJob  # noqa: PLC0415
    from colane.model.job import JobId, JobSpec  # noqa: PLC0415 - imported late

    has_ended = item["state"] in ENDED
    never = has_ended and item["start_s"] is None
    gpu_type = known.types.get(item["gpus"][0], "") if item["gpus"] else ""
    after = _after(item, names)
    is_alone = item["id"] in known.alone
    run = _run(item, gpu_type, known, is_alone=is_alone)
    left_ratio = 1.0
    if _ran_by(item, known.window.since_s):
        had_s = known.window.since_s - run_of(item)[0]
        left_ratio = max(0.0, 1 - had_s / max(run.whole_s, had_s))
    labels = {**item["labels"], RAN_ON: gpu_type, OVERHEAD: str(run.own_s if left_ratio == 1 else 0.0)}
    if left_ratio == 1 and item["start_s"] is not None:
        given_s = (line["at_s"] for line in item.get("story", ()) if line["state"] == JobState.ASSIGNED)
        labels[STARTED_S] = str((next(given_s, None) or item.get("first_start_s") or run_of(item)[0]) - first_s)
    if left_ratio == 1 and has_ended and not never:
        labels[ENDED_S] = str(run_of(item)[1] - first_s)
    if left_ratio == 1 and not has_ended and run.whole_s > 0:
        labels[DONE_S] = str(run.work_s * min(1.0, run.had_s / run.whole_s))
    if run.is_open:
        labels[HAD_S] = str(run.had_s)
    spec = JobSpec(
        name=f"job-{item['id']}",
        family=item["family"],
        labels=labels,
        gpus=item["needs"]["gpus"],
        sizes=tuple(item["needs"].get("sizes") or ()),
        **{
            **dict(_declared(item)),
            "steps_total": None if run.steps is None else max(1, round(run.steps * left_ratio)),
        },
    )
    return TraceJob(
        id=JobId(number),
        submit_s=max(0.0, item["submit_s"] - first_s),
        spec=spec,
        duration_s=run.work_s * left_ratio,
        outcome=item["state"],
        held_s=held_s(item, is_ordered=bool(after)) if item["start_s"] is not None else 0.0,
        cancelled_s=(item["end_s"] or 0.0) - max(first_s, item["submit_s"]) if never else None,
        after=after,
        changed_limit_s=_changed_limit_s(item),
        failed_s=tuple(ran_s for ran_s, failed, _ in earlier_runs(item, first_s, float(labels[OVERHEAD])) if failed),
    )


class WorkOfRun(NamedTuple):
    """What a job has to do."""

    steps: int | None  # those that it makes; None where it makes none
    work_s: float  # what they take alone
    own_s: float  # what its run takes besides them
    whole_s: float  # how long its run took, or is taken to take, as it was recorded
    had_s: float  # how long it has run
    # it has not ended, and nothing tells how long it takes: `work_s` is the middle of what others took
    is_open: bool = False


def _run(item: JobObject, gpu_type: str, known: KnownOfRuns, *, is_alone: bool) -> WorkOfRun:
    table = known.table
    if item["state"] in ENDED and item["start_s"] is not None:
        steps = item["steps"] or None
        own_s = _own_overhead_s(item, gpu_type, table, is_alone=is_alone)
        start_s, end_s = run_of(item)
        run_s = max(0.0, end_s - start_s - own_s)
        if item["needs"].get("preemptible"):  # what it had done by then was saved
            before = earlier_runs(item, known.window.since_s, own_s)
            run_s += sum([ran_s for ran_s, has_failed, was_asked in before if was_asked and not has_failed])
        is_whole = is_alone and item["state"] == "succeeded"
        work_s = run_s if is_whole else _kind_s(item, steps, gpu_type, table) or run_s
        return WorkOfRun(steps, work_s, own_s, end_s - start_s, end_s - start_s)
    told, had_s = item["facts"], 0.0
    if item["start_s"] is not None:
        start_s, end_s = run_of(item)
        had_s = end_s - start_s
    steps = told["steps_total"]
    if item["start_s"] is not None and told["left_s"] is not None:
        whole_s = had_s + told["left_s"]
        return WorkOfRun(steps, _kind_s(item, steps, gpu_type, table) or whole_s, 0.0, whole_s, had_s)
    for kind in {gpu_type} if gpu_type else sorted(set(known.types.values())):
        known_s = _kind_s(item, steps, kind, table)
        if known_s is not None:
            return WorkOfRun(steps, known_s, table.overhead.alone_s, had_s + known_s, had_s)
    longer = known.lengths.longer(item["family"], had_s)
    middle_s = longer[len(longer) // 2]
    return WorkOfRun(None, middle_s, 0.0, middle_s, had_s, is_open=True)


def _declared(item: JobObject) -> Iterator[tuple[str, Any]]:
    """What its owner declared, as far as a trace carries it; a record of an older service lacks the newer fields."""
    from colane.model.job_fields import JOB_FIELDS, Shelf  # noqa: PLC0415 - imported late
    from colane.model.job_spec import ALL_BUT  # noqa: PLC0415

    for field in JOB_FIELDS:
        body: Mapping[str, Any] = item if field.shelf is Shelf.JOB else item["needs"]
        if field.column and field.name in body:
            value = field.in_job(body[field.name])
            if field.name == "nodes" and value:  # each is a group of its own in a cluster's file
                but = ALL_BUT if value.startswith(ALL_BUT) else ""
                value = but + ",".join([f"{name}-0" for name in value.removeprefix(but).split(",")])
            yield field.name, value


def earlier_runs(item: JobObject, since_s: float, own_s: float) -> Iterator[tuple[float, bool, bool]]:
    """Yield how long those before the last ran after a time and after what it takes to begin, until asked to leave.

    And of each whether it failed and was tried again, and whether it was asked to leave.
    """
    begun_s = asked_s = None
    for line in item.get("story", ()):
        if line["state"] == JobState.LAUNCHING and begun_s is None:
            begun_s = line["at_s"] + own_s
        elif line["state"] in LEAVING and asked_s is None:
            asked_s = line["at_s"]
        elif line["state"] == JobState.QUEUED:
            if begun_s is not None and line["at_s"] > since_s:
                ran_s = max(0.0, (asked_s or line["at_s"]) - max(begun_s, since_s))
                yield ran_s, line.get("why") == Why.RETRY, asked_s is not None
            begun_s = asked_s = None


def _changed_limit_s(item: JobObject) -> float | None:
    """Its time limit where that was changed after its submission, as a trace has it."""
    constraints = item.get("constraints", {})
    if "time_limit_s" not in constraints:
        return None
    return inf if constraints["time_limit_s"] is None else constraints["time_limit_s"]


def _names(items: Sequence[JobObject]) -> dict[int, list[str]]:
    """By id what a trace calls a job, or all elements of an array."""
    found: dict[int, list[str]] = {}
    for item in items:
        for known in {item["id"], item.get("array_id") or item["id"]}:
            found.setdefault(known, []).append(f"job-{item['id']}")
    return found


def _after(item: JobObject, names: Mapping[int, Sequence[str]]) -> str:
    """What it waited for, as a trace says it; nothing where a job of those is none of the trace."""
    from colane.model.arrays import parse_name  # noqa: PLC0415 - imported late

    found = list[str]()
    for condition in (in_force(item, "after") or "").split(","):
        kind, _, other = condition.partition(":")
        job_id, indexes = parse_name(other) if other else (0, None)
        if kind == "each" or indexes is not None or not names.get(job_id):
            return ""
        found += [f"{kind}:{name}" for name in names[job_id]]
    return ",".join(found)


def held_s(item: JobObject, *, is_ordered: bool) -> float:
    """From its submission to when it was last let go before it first started; 0 where it was never held.

    Of a job that waits for others in the trace, too, what it waited for them is not counted.
    """
    first_s = item.get("first_start_s") or run_of(item)[0]
    counted, held_by, let_go_s = OF_ITS_OWNER - {"after"} if is_ordered else OF_ITS_OWNER, set[str](), item["submit_s"]
    for line in item.get("story", ()):
        still = set(line.get("held_by", ()))
        if counted & (held_by - still) and line["state"] == "queued" and line["at_s"] <= first_s:
            let_go_s = line["at_s"]
        held_by = still
    return max(0.0, let_go_s - item["submit_s"])


OF_ITS_OWNER = frozenset({"user", "begin", "after", "array"})
"""Kinds of holds that a simulation cannot find: those of a limit it finds again."""


def _own_overhead_s(item: JobObject, gpu_type: str, table: MeasuredTable, *, is_alone: bool) -> float:
    """As the run itself shows it, none of one without steps: all of its run is work.

    On cpu devices co-runners slow launching too, so there that of runs alone.
    """
    found_s = overhead_s(item)
    if found_s is None:
        return 0.0
    return table.overhead.alone_s if gpu_type == CPU_DEVICE_TYPE and not is_alone else found_s


def _kind_s(item: JobObject, steps: int | None, gpu_type: str, table: MeasuredTable) -> float | None:
    """Its steps at the measured speed of its kind alone; None where that is not known."""
    known = table.jobs.get(_key(item, gpu_type))
    return None if known is None or steps is None else steps * known.step_s


def _cluster(nodes: Sequence[NodeObject], ran: Sequence[JobObject], then: Sequence[JobObject]) -> dict[str, Any]:
    costs: dict[str, float] = {}
    there: dict[str, list[JobObject]] = {}
    for item in then:
        for name in {gpu.partition("/")[0] for gpu in item["gpus"]}:
            there.setdefault(name, []).append(item)
    for name, (before, after) in COSTS.items():  # as medians over all stories
        took_s = [
            line["at_s"] - last["at_s"]
            for item in ran
            for last, line in pairwise(item.get("story", ()))
            if last["state"] in before and line["state"] in after
        ]
        if took_s:
            costs[name] = round(median(took_s), 3)
    groups = [
        {
            "name": node["name"],
            "gpus": len(gpus),
            **({"gpu_type": gpus[0]["type"], "gpu_memory": min(gpu["memory_bytes"] for gpu in gpus)} if gpus else {}),
            "cores": len(node["cores"]),
            "host_memory": node["host_memory_bytes"],
            "pool": node["pool"],
            **({"others": round(others, 3)} if others else {}),
        }
        for node in nodes
        for gpus, others in [(node["gpus"], _others_ratio(there.get(node["name"], ())))]
    ]
    return {"name": "export", **({"costs": costs} if costs else {}), "groups": groups}


OF_NODES: Final = {
    "node-drained": "drain", "node-undrained": "undrain", "node-lost": "lost", "node-removed": "lost",
    "node-returned": "back", "node-registered": "back",
}  # fmt: skip
"""What a trace calls what the scheduler tells of nodes."""


def node_events(
    lines: Iterable[Event], nodes: Mapping[str, Collection[ReservationObject]], window: TimeWindow
) -> Iterator[dict[str, Any]]:
    """Yield what happened to nodes within a time, as a cluster's file has it: how they were at its begin is said first.

    A node that was made known within it was gone until then, where the scheduler still knows all that happened. Of a
    reservation whose making an older scheduler has not told whole, or no longer knows, it was there all the time.

    Args:
        lines: What the scheduler tells of nodes, in order.
        nodes: Those there are, by name, with their reservations now.
        window: The time.
    """
    told = list(lines)
    yield from _of_states(told, nodes, window)
    yield from _of_reservations(told, nodes, window)


def _of_reservations(
    lines: Iterable[Event], nodes: Mapping[str, Collection[ReservationObject]], window: TimeWindow
) -> Iterator[dict[str, Any]]:
    spans: list[tuple[str, ReservationObject, float, float]] = []  # each with when it was made and cancelled
    known: dict[tuple[str, str], tuple[ReservationObject, float]] = {}
    for line in lines:
        if line.kind == "node-reserved" and "kept" in line.body:
            name, at_s = line.body["node"], line.body["at_s"]
            now = {(name, one["name"]): one for one in line.body["kept"]}
            over = [key for key, (one, _) in known.items() if key[0] == name and now.get(key) != one]
            spans += [(name, *known.pop(key), at_s) for key in over]
            known.update({key: (one, at_s) for key, one in now.items() if key not in known})
    for name, standing in nodes.items():
        spans += [(name, one, 0.0, inf) for one in standing if (name, one["name"]) not in known]
    spans += [(name, *made, inf) for (name, _), made in known.items()]
    for name, one, made_s, cancelled_s in spans:
        at_s, from_s = max(made_s, window.since_s), one["from_s"]
        if name in nodes and at_s < min(one["to_s"], cancelled_s, window.until_s):
            times = {"at": at_s, "from": max(from_s, at_s), "to": one["to_s"]}
            of = {"node": name, "name": one["name"]}
            yield {**of, "event": "reserve", "users": one["users"], **{k: v - window.since_s for k, v in times.items()}}
            if cancelled_s < min(one["to_s"], window.until_s):
                yield {**of, "event": "unreserve", "at": cancelled_s - window.since_s}


def _of_states(lines: Iterable[Event], nodes: Collection[str], window: TimeWindow) -> Iterator[dict[str, Any]]:
    from colane.lab.traces.node_events import AFTER, ALLOWED, NodeEventKind  # noqa: PLC0415 - imported late

    state, known, is_whole, began = dict[str, str](), set[str](), False, False
    found: list[dict[str, Any]] = []
    for line in lines:
        is_whole = is_whole or line.number == 1
        kind, name, at_s = OF_NODES.get(line.kind), line.body.get("node", ""), line.body["at_s"]
        if kind is None or name not in nodes or at_s > window.until_s:
            continue
        if at_s > window.since_s and not began:
            began, found = True, [_at_begin(node, how) for node, how in state.items() if how != "there"]
        if line.kind == "node-registered" and name not in known and began and is_whole:
            found.insert(0, _at_begin(name, "gone"))
            state[name] = "gone"
        known.add(name)
        event = NodeEventKind(kind)
        if state.get(name, "there") not in ALLOWED[event]:
            continue
        state[name] = AFTER[event]
        deadline_s = line.body.get("deadline_s")
        within = {} if deadline_s is None else {"within": max(0.0, deadline_s - at_s)}
        reason = {"reason": line.body["reason"]} if line.body.get("reason") and kind == "drain" else {}
        found += [{"at": at_s - window.since_s, "node": name, "event": kind, **within, **reason}] if began else []
    yield from found if began else [_at_begin(node, how) for node, how in state.items() if how != "there"]


def _at_begin(node: str, how: str) -> dict[str, Any]:
    return {"at": 0.0, "node": node, "event": "lost" if how == "gone" else "drain"}


def limit_events(lines: Iterable[Event], ran: Iterable[JobObject], window: TimeWindow) -> Iterator[dict[str, Any]]:
    """Yield which limits held within a time, as a cluster's file has it: at its begin, and where they changed.

    Where they have budgets, with what was used of the month at its begin, and none where a month begins within it.
    """
    since_s, (begins_s, next_s) = window.since_s, month_of(window.since_s)
    told = {max(since_s, line.body["at_s"]): line.body["limits"] for line in lines if "limits" in line.body}
    months: dict[float, dict[str, float]] = {}
    if "gpu_hours_per_month" in str(told):
        months = {since_s: dict[str, float](), next_s: {}}
        for item in ran:
            start_s, end_s = run_of(item)
            had_s = len(item["gpus"]) * max(0.0, min(end_s, since_s) - max(start_s, begins_s))
            months[since_s][item["user"]] = months[since_s].get(item["user"], 0.0) + had_s / 3600
    limits: dict[str, Any] = {}
    for at_s in sorted([at_s for at_s in {*told, *months} if at_s < window.until_s]):
        limits = told.get(at_s, limits)
        of_month = {"used": months[at_s]} if at_s in months else {}
        if at_s in told or limits:
            yield {"at": at_s - since_s, "event": "limits", "limits": limits, **of_month}


COSTS: Final = {"launch": ({"assigned"}, {"launching"}), "stop": ({"stopping", "checkpointing"}, {"queued"})}
"""What living takes besides steps: from being in one of these states to being in one of those."""
