"""`colane replay` and `colane whatif`: the jobs of a time again, under other policies or on another cluster.

First the policy that ruled is simulated on its own past: how far that is from what was is how far the rest is to be
trusted. Everything else is told by its difference from that simulation, not from the past. What nothing tells, the
lengths of jobs that have not ended, is drawn from what others of their families took, several times.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn
from colane.lab.commands.export import Since, Until, export_jobs, export_state, kept_in, parse_window, request_of
from colane.model.words import count, percent

if TYPE_CHECKING:
    from colane.api.seeing import SharedUserObject
    from colane.lab.simulate.request import Loaded, Request
    from colane.lab.traces.clusters import Cluster
    from colane.lab.traces.workload import TraceJob
    from colane.model.limits import Quotas

DRAWS: Final = 8
"""Of the lengths of jobs that have not ended."""

TRUSTED_RATIO: Final = 0.05
"""A simulation that is off by no more is trusted."""

SLOWED_TOLD: Final = 20  # so many jobs of a user's that were slowed are told one by one

SAME_RATIO: Final = 0.005  # a difference that is not told

PAIRS_MAX: Final = 2000
"""The order of starts is compared among so many jobs, the last that started."""

Past = Annotated[
    Path | None,
    typer.Option("--past", metavar="DIR", help="What colane export --since wrote, in place of asking the scheduler."),
]
Ruled = Annotated[
    str | None,
    typer.Option(
        "--ruled", metavar="NAME|FILE.py:NAME", show_default="as the scheduler says", help="Policy that ruled."
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", "-p", metavar="NAME|FILE.py:NAME", help="Policy to try; may be repeated."),
]

Progress = Annotated[
    bool, typer.Option("--progress", help="Say on standard error how far it is, and end with whoever reads that.")
]


def register(app: typer.Typer, name: str) -> None:
    """Add one of the commands."""
    if name == "replay":
        app.command(name, epilog="Example: [bold]colane replay --since yesterday -p fifo -p colane[/bold]")(replay)
    else:
        app.command(name, epilog="Example: [bold]colane whatif --nodes +2 --since 7d[/bold]")(whatif)


def replay(
    since: Since = None,
    until: Until = None,
    policy: Policies = None,
    past: Past = None,
    ruled: Ruled = None,
    by_user: Annotated[
        bool,
        typer.Option("--by-user", help="What sharing did for each user, beside each job alone in FIFO."),
    ] = False,
    progress: Progress = False,
    as_json: output.Json = False,
) -> None:
    """Say what other policies would have made of the jobs of a time, and how far that is to be trusted.

    The policy that ruled is simulated first, beside what really was. Without --since, of the last day.
    """
    if by_user and policy:
        raise MisuseError("--by-user: compares with FIFO alone; leave out --policy")
    with _read(since or "1d", until, past, ruled) as (request, rule):
        if by_user:
            alone = Tried("fifo", "fifo, each alone", partial(_unshared, request))
            _tell(
                request,
                [Tried(rule, rule, lambda loaded: loaded), alone],
                rule,
                HowTold(as_json, progress, by_user=True),
            )
            return
        asked = [rule, *(name for name in policy or ["fifo", "colane"] if name != rule)]
        tried = [Tried(name, name, lambda loaded: loaded) for name in asked]
        _tell(request, tried, rule, HowTold(as_json, progress))


def whatif(  # noqa: PLR0913, PLR0917 - a command line option is a parameter
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="[POOL:]+N|-N", help="With so many nodes more, like those there, or fewer."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", "-p", metavar="NAME|FILE.py:NAME", help="Under this policy.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota", metavar="USER.gpus=N", help="With a user's limit on GPUs, or on running jobs (USER.running=N)."
        ),
    ] = None,
    share: Annotated[
        bool, typer.Option("--share/--no-share", help="Whether jobs share GPUs where they do now.")
    ] = True,
    since: Since = None,
    until: Until = None,
    past: Past = None,
    ruled: Ruled = None,
    progress: Progress = False,
    as_json: output.Json = False,
) -> None:
    """Say what a change would do to the jobs that wait and run now, or with --since to those of a time.

    Told as a difference from the same jobs without the change.
    """
    if nodes is None and policy is None and not quota and share:
        raise MisuseError("whatif: say what is to change: --nodes, --policy, --quota or --no-share")
    limits = _quotas(quota or ())
    with _read(since or "now", until, past, ruled) as (request, rule):

        def changed(loaded: Loaded) -> Loaded:
            cluster = loaded.cluster if nodes is None else with_nodes(loaded.cluster, nodes)
            changed = loaded if share else _unshared(request, loaded)
            return _with_jobs(request, replace(changed, cluster=cluster), changed.workload.jobs)

        what = [f"--nodes {nodes}"] if nodes else []
        what += [policy] if policy else []
        what += [*(quota or ())] + ([] if share else ["no sharing"])
        tried = [
            Tried(rule, "as it is", lambda loaded: loaded),
            Tried(policy or rule, ", ".join(what), changed, limits),
        ]
        _tell(request, tried, rule, HowTold(as_json, progress))


class Tried(NamedTuple):
    """One thing to simulate: a policy, what it is called, what is changed, and limits of users."""

    policy: str
    name: str
    change: Callable[[Loaded], Loaded]
    limits: Quotas | None = None


@contextmanager
def _read(since: str, until: str | None, past: Path | None, ruled: str | None) -> Iterator[tuple[Request, str]]:
    """The past as a request, and the policy that ruled."""
    import time  # noqa: PLC0415

    if past is not None and past.is_file():
        kept = kept_in("--past", past)
        yield kept.goes_on, ruled or kept.policy
        return
    if past is not None:
        missing = [name for name in ("cluster.yaml", "trace.csv", "measured.json") if not (past / name).is_file()]
        if missing:
            raise MisuseError(f"--past: {past} has no {missing[0]}: name what colane export --out wrote")
        yield request_of(past), ruled or "colane"
        return
    now_s = time.time()
    window = parse_window(since, until, now_s)
    with TemporaryDirectory(prefix="colane-past-") as folder, jobs.client() as scheduler:
        rule = ruled or scheduler.health()["policy"]
        if since == "now":
            yield export_state(scheduler, Path(folder) / "state").goes_on, rule
        else:
            export_jobs(scheduler, {}, Path(folder), window, now_s)
            yield request_of(Path(folder)), rule


class ReplayedJob(NamedTuple):
    """When one job was submitted, could start, started and ended, on the clock of the trace."""

    name: str
    ready_s: float
    start_s: float
    end_s: float


class PastFigures(NamedTuple):
    """What came of jobs: seconds, means over those that ended."""

    ended: int
    mean_wait_s: float
    p90_wait_s: float
    mean_jct_s: float
    makespan_s: float

    @classmethod
    def of(cls, times: Sequence[ReplayedJob]) -> PastFigures:
        """Those of these."""
        many = len(times)
        if not many:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        waits = sorted(max(0.0, one.start_s - one.ready_s) for one in times)
        jcts = math.fsum(one.end_s - one.ready_s for one in times)
        begun_s, ended_s = min(one.ready_s for one in times), max(one.end_s for one in times)
        p90_s = waits[min(many - 1, int(0.9 * many))]
        return cls(many, math.fsum(waits) / many, p90_s, jcts / many, ended_s - begun_s)


FIGURES: Final = {
    "mean_wait_s": "mean wait",
    "p90_wait_s": "p90 wait",
    "mean_jct_s": "mean time to end",
    "makespan_s": "makespan",
}


def recorded(traced: Sequence[TraceJob]) -> list[ReplayedJob]:
    """What was, of the jobs that came and ended within the time."""
    from colane.lab.traces.tables.measured import ENDED_S, STARTED_S  # noqa: PLC0415

    return [
        ReplayedJob(
            job.spec.name, job.submit_s + job.held_s, float(job.spec.labels[STARTED_S]), float(job.spec.labels[ENDED_S])
        )
        for job in traced
        if STARTED_S in job.spec.labels and ENDED_S in job.spec.labels
    ]


def same_order_ratio(one: Sequence[ReplayedJob], other: Sequence[ReplayedJob]) -> float:
    """Part of the pairs of jobs that start in the same order in both; those that start at once in one count."""
    there = {times.name: times.start_s for times in other}
    starts = sorted((times.start_s, there[times.name]) for times in one if times.name in there)[-PAIRS_MAX:]
    pairs = len(starts) * (len(starts) - 1) // 2
    wrong = sum(
        first[0] < second[0] and first[1] > second[1]
        for place, first in enumerate(starts)
        for second in starts[place + 1 :]
    )
    return 1.0 if not pairs else 1 - wrong / pairs


class Trust(NamedTuple):
    """How near the simulation of the policy that ruled comes to what was: by figure simulated over recorded, less 1."""

    jobs: int
    errors: Mapping[str, float]
    same_order_ratio: float

    @property
    def is_trusted(self) -> bool:
        """Whether mean wait, mean time to end and makespan are near."""
        return all(abs(self.errors[name]) <= TRUSTED_RATIO for name in ("mean_wait_s", "mean_jct_s", "makespan_s"))


def trust(was: Sequence[ReplayedJob], simulated: Sequence[ReplayedJob]) -> Trust:
    """Compare what was with what is simulated, of the jobs in both."""
    both = {times.name for times in was} & {times.name for times in simulated}
    real, made = (PastFigures.of([times for times in side if times.name in both]) for side in (was, simulated))
    errors = {name: _ratio(getattr(made, name), getattr(real, name)) for name in FIGURES}
    return Trust(len(both), errors, same_order_ratio([one for one in was if one.name in both], simulated))


def _ratio(value: float, base: float) -> float:
    """By how much a time differs from another: less than a second is nothing."""
    return 0.0 if abs(value - base) < 1.0 else (value - base) / max(base, 1.0)


class TriedRuns(NamedTuple):
    """What came of one thing that was tried, by draw."""

    tried: Tried
    by_draw: list[list[ReplayedJob]]


def _run(request: Request, loaded: Loaded, tried: Tried, seed: int) -> list[ReplayedJob]:
    from colane.lab.simulate.request import inputs  # noqa: PLC0415
    from colane.lab.simulate.run import simulate  # noqa: PLC0415

    given = request if tried.limits is None else replace(request, limits=tried.limits)
    changed = tried.change(loaded)
    run = simulate(inputs(given, changed, tried.policy, seed, as_published=False))
    rows, by_id = run.ledger.rows, {job.id: job for job in changed.workload.jobs}
    return [
        ReplayedJob(by_id[job].spec.name, by_id[job].submit_s + by_id[job].held_s, start_s, end_s)  # type: ignore[index]
        for job, start_s, end_s in zip(rows.id, rows.first_start_s, rows.end_s, strict=True)
        if not (math.isnan(start_s) or math.isnan(end_s))
    ]


def drawn(traced: Sequence[TraceJob], seed: int) -> list[TraceJob]:
    """The jobs, with another length of each that has not ended and of which nothing tells one."""
    from colane.lab.traces.tables.measured import HAD_S  # noqa: PLC0415

    known: dict[str, list[float]] = {}
    for job in traced:
        if HAD_S not in job.spec.labels and job.duration_s is not None:
            for of in (job.spec.family, ""):
                known.setdefault(of, []).append(job.duration_s)
    chance = random.Random(seed)  # noqa: S311 - no secret

    def one(job: TraceJob) -> TraceJob:
        had_s = float(job.spec.labels[HAD_S])
        for of in (job.spec.family, ""):
            longer = sorted(length for length in known.get(of, ()) if length > had_s)
            if longer:
                return replace(job, duration_s=longer[chance.randrange(len(longer))])
        return replace(job, duration_s=(job.duration_s or had_s) * math.exp(chance.gauss(0, 1)))

    return [one(job) if HAD_S in job.spec.labels else job for job in traced]


def _unshared(request: Request, loaded: Loaded) -> Loaded:
    """Each job with its GPUs to itself."""
    traced = [replace(job, spec=replace(job.spec, share=False)) for job in loaded.workload.jobs]
    return _with_jobs(request, loaded, traced)


def shares_of(traced: Sequence[TraceJob], alone: Sequence[Sequence[ReplayedJob]]) -> list[SharedUserObject]:
    """Hold what users had against what they would have had alone, by draw; the sums of all come last."""
    was, of = {one.name: one for one in recorded(traced)}, {job.spec.name: job for job in traced}
    ends = [{one.name: one.end_s - one.ready_s for one in draw} for draw in alone]
    both = [name for name in was if all(name in draw for draw in ends)]
    users: dict[str, list[str]] = {}
    for name in both:
        users.setdefault(of[name].spec.user, []).append(name)
    return [_shares(user, names, was, of, ends) for user, names in [*sorted(users.items()), ("all", both)]]


def _shares(
    user: str,
    names: Sequence[str],
    was: Mapping[str, ReplayedJob],
    of: Mapping[str, TraceJob],
    ends: Sequence[Mapping[str, float]],
) -> SharedUserObject:
    ran_s = {name: was[name].end_s - was[name].start_s for name in names}
    ratios = [(ran_s[name] / alone_s, name) for name in names if (alone_s := of[name].duration_s)]
    slowed = sorted([one for one in ratios if one[0] > 1 + TRUSTED_RATIO], reverse=True)
    told = [] if user == "all" else slowed[:SLOWED_TOLD]
    sums = [math.fsum(draw[name] for name in names) / 3600 for draw in ends]
    return {
        "user": user, "jobs": len(names),
        "gpu_h": math.fsum(ran_s[name] * of[name].spec.gpus for name in names) / 3600,
        "took_h": math.fsum(was[name].end_s - was[name].ready_s for name in names) / 3600,
        "alone_h": (math.fsum(sums) / len(sums), min(sums), max(sums)),
        "slowed": len(slowed), "slowed_ratio": slowed[0][0] if slowed else 1.0,
        "slowed_jobs": [{"job": int(name.rpartition("-")[2]), "ratio": ratio} for ratio, name in told],
    }  # fmt: skip


def _tell_users(shares: Sequence[SharedUserObject]) -> None:
    output.say()
    heads = ("USER", "JOBS", "GPU HOURS", "TOOK", "ALONE IN FIFO", "SLOWED", "MOST")
    rows = []
    for one in shares:
        mean, least, most = one["alone_h"]
        alone = f"{mean:.1f} h" + ("" if most - least < 0.05 else f" ({least:.1f} to {most:.1f})")
        worst = f"{one['slowed_ratio']:.2f} times" if one["slowed"] else ""
        worst += "".join([f" (job {each['job']})" for each in one["slowed_jobs"][:1]])
        had, took = f"{one['gpu_h']:.1f}", f"{one['took_h']:.1f} h"
        rows.append([one["user"], str(one["jobs"]), had, took, alone, str(one["slowed"]), worst])
    output.print_table([ScreenColumn(head, is_number=place > 0) for place, head in enumerate(heads)], rows)


def _with_jobs(request: Request, loaded: Loaded, traced: Sequence[TraceJob]) -> Loaded:
    from colane.lab.simulate.request import make_world  # noqa: PLC0415

    workload = replace(loaded.workload, jobs=tuple(traced))
    return replace(loaded, workload=workload, world=make_world(request, workload, loaded.cluster))


class HowTold(NamedTuple):
    """How it is told."""

    as_json: bool
    progress: bool
    by_user: bool = False


def _tell(request: Request, tried: Sequence[Tried], ruled: str, wanted: HowTold) -> None:
    from colane.lab.simulate.driver import StandstillError  # noqa: PLC0415
    from colane.lab.simulate.request import load  # noqa: PLC0415
    from colane.lab.traces.tables.measured import HAD_S  # noqa: PLC0415
    from colane.policyfiles.guard import PolicyFaultError  # noqa: PLC0415

    try:
        loaded = load(request, 0)
        is_open = sum(HAD_S in job.spec.labels for job in loaded.workload.jobs)
        draws = [
            _with_jobs(request, loaded, drawn(loaded.workload.jobs, seed)) for seed in range(DRAWS if is_open else 1)
        ]
        found = [TriedRuns(one, []) for one in tried]
        for number, (runs, draw) in enumerate(product(found, draws)):
            if wanted.progress:
                print(number, "of", len(found) * len(draws), file=sys.stderr, flush=True)  # noqa: T201 - not for people
            runs.by_draw.append(_run(request, draw, runs.tried, 0))
    except (PolicyFaultError, StandstillError) as error:
        raise FailureError(str(error)) from error
    except ValueError as error:
        raise MisuseError(str(error)) from error
    near = trust(recorded(loaded.workload.jobs), found[0].by_draw[0])
    rows = [_row(outcome, found[0]) for outcome in found]
    users = shares_of(loaded.workload.jobs, found[-1].by_draw) if wanted.by_user else []
    drawn_text = f"; of {count(is_open, 'job')} that have not ended, lengths are drawn {DRAWS} times" if is_open else ""
    there = f"{count(len(loaded.workload.jobs), 'job')} on {count(len(loaded.cluster.nodes), 'node')}"
    said = [f"{there}, under {ruled}{drawn_text}", _trust_text(near, ruled), *map(rows[0].against, rows[1:])]
    if wanted.as_json:
        output.print_json({
            "jobs": len(loaded.workload.jobs), "open": is_open, "draws": len(draws), "ruled": ruled,
            "trust": {**near._asdict(), "is_trusted": near.is_trusted} if near.jobs else None,
            "tried": [row.told() for row in rows], "said": said,
            **({"users": users} if wanted.by_user else {}),
        })  # fmt: skip
        return
    for line in said:
        output.say(line)
    output.say()
    columns = [
        ScreenColumn(heading, is_number=place > 0)
        for place, heading in enumerate(("", "ENDED", *map(str.upper, FIGURES.values())))
    ]
    output.print_table(columns, [row.texts(is_first=place == 0) for place, row in enumerate(rows)])
    if users:
        _tell_users(users)


class TriedRow(NamedTuple):
    """One thing tried: its figures, means over draws; by how much each differs from the first: mean, least, most."""

    name: str
    ended: int
    figures: dict[str, float]
    differences: dict[str, tuple[float, float, float]]

    def told(self) -> dict[str, Any]:
        """For programs."""
        return self._asdict()

    def texts(self, *, is_first: bool) -> list[str]:
        """For a table."""
        return [self.name, str(self.ended), *(self._cell(name, is_first=is_first) for name in FIGURES)]

    def against(self, other: TriedRow) -> str:
        """In words, what another would change."""
        said = [
            f"{word} {output.duration(other.figures[name])} in place of {output.duration(self.figures[name])}"
            for name, word in FIGURES.items()
            if abs(other.differences[name][0]) >= SAME_RATIO
        ]
        return f"with {other.name}: {', '.join(said) or 'nothing would change'}"

    def _cell(self, name: str, *, is_first: bool) -> str:
        text = output.duration(self.figures[name])
        if is_first:
            return text
        mean, least, most = self.differences[name]
        between = "" if math.isclose(least, most, abs_tol=0.005) else f", {_signed(least)} to {_signed(most)}"
        return f"{text} ({_signed(mean)}{between})"


def _row(outcome: TriedRuns, first: TriedRuns) -> TriedRow:
    by_draw = [PastFigures.of(times) for times in outcome.by_draw]
    base = [PastFigures.of(times) for times in first.by_draw]
    mean = {name: math.fsum(getattr(one, name) for one in by_draw) / len(by_draw) for name in FIGURES}
    differences = {}
    for name in FIGURES:
        ratios = [_ratio(getattr(one, name), getattr(other, name)) for one, other in zip(by_draw, base, strict=True)]
        differences[name] = math.fsum(ratios) / len(ratios), min(ratios), max(ratios)
    return TriedRow(outcome.tried.name, min(one.ended for one in by_draw), mean, differences)


def _signed(ratio: float) -> str:
    return "same" if abs(ratio) < SAME_RATIO else ("+" if ratio > 0 else "-") + percent(abs(ratio))


def _trust_text(near: Trust, ruled: str) -> str:
    if not near.jobs:
        return "no job came and ended in this time: nothing tells how far the simulation is to be trusted"
    errors = ", ".join(f"{FIGURES[name]} {_signed(near.errors[name])}" for name in FIGURES)
    verdict = "trusted" if near.is_trusted else f"more than {percent(TRUSTED_RATIO)} off: take differences with care"
    return (
        f"trust: {ruled} simulated on its own past, against what was ({count(near.jobs, 'job')}): {errors}; "
        f"{percent(near.same_order_ratio)} of pairs start in the same order: {verdict}"
    )


def with_nodes(cluster: Cluster, text: str) -> Cluster:
    """The cluster with nodes added, like the last of their pool, or without its last ones.

    Raises:
        MisuseError: The text names no such change.
    """
    pool, _, number = text.rpartition(":")
    if re.fullmatch(r"[+-]\d{1,4}", number) is None:
        raise MisuseError(f"--nodes: must be as +2, -1 or big:+2, got {text!r}")
    of_pool = [node for node in cluster.nodes if node.pool == pool or not pool]
    if pool and not of_pool:
        raise MisuseError(
            f"--nodes: there is no pool {pool!r}; known: {', '.join(sorted({node.pool for node in cluster.nodes}))}"
        )
    change = int(number)
    if change < 0:
        gone = {node.name for node in of_pool[change:]}
        if len(gone) < -change or len(gone) == len(cluster.nodes):
            raise MisuseError(f"--nodes: there are {count(len(of_pool), 'node')}: {number} leaves none")
        events = tuple(event for event in cluster.events if event.node not in gone)
        return replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name not in gone), events=events)
    names = {node.name for node in cluster.nodes}
    like = replace(of_pool[-1], drain=None, notice=None, closed=None, reservations=())
    more = [name for name in (f"more{place}" for place in range(len(names) + change)) if name not in names][:change]
    return replace(cluster, nodes=(*cluster.nodes, *(replace(like, name=name) for name in more)))


def _quotas(texts: Sequence[str]) -> Quotas | None:
    """Limits of users as they are said.

    Raises:
        MisuseError: One is not as USER.gpus=N.
    """
    from colane.model.limits import Limits, Quotas  # noqa: PLC0415

    if not texts:
        return None
    users: dict[str, Limits] = {}
    for text in texts:
        name, _, value = text.partition("=")
        user, _, what = name.rpartition(".")
        if not user or what not in {"gpus", "running"} or not value.isdecimal():
            raise MisuseError(f"--quota: must be as ann.gpus=4 or ann.running=2, got {text!r}")
        users[user] = replace(users.get(user, Limits()), **{what: int(value)})
    return Quotas(users=users)
