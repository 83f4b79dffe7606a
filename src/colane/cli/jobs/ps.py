"""`colane ps`: the queue and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.output import ScreenColumn
from colane.client.errors import Refused
from colane.client.told import facts_of

if TYPE_CHECKING:
    from colane.api.jobs import JobObject, LeftOutObject
    from colane.client.client import Client

LIMIT: Final = 100
LISTED_MAX: Final = 10_000  # jobs of each sort: those a screen shows, and the most that may be asked for

HOLDS: Final = frozenset({"user", "begin", "after"})  # kinds of holds that keep all elements of an array from starting

WHY_MAX: Final = 20  # each reason is a question to the policy, so only those that fit a screen are asked

COLUMNS = (
    ScreenColumn("ID", is_number=True),
    ScreenColumn("NAME", may_fold=True),
    ScreenColumn("USER"),
    ScreenColumn("STATE"),
    ScreenColumn("GPUS", may_fold=True),
    ScreenColumn("STEPS", is_number=True),
    ScreenColumn("STEPS/S", is_number=True),
    ScreenColumn("TIME", is_number=True),
    ScreenColumn("ETA", is_number=True),
    ScreenColumn("REASON", may_fold=True),
)

SHARING = (
    ScreenColumn("LANE"),
    ScreenColumn("TURN"),
    ScreenColumn("SHARE", is_number=True),
    ScreenColumn("SLOWDOWN", is_number=True),
    ScreenColumn("LATENCY", is_number=True),
    ScreenColumn("CORES", is_number=True),
    ScreenColumn("SAVED", is_number=True),
)
"""Of jobs that share GPUs, answer requests, have their cores tuned or save their state; empty ones are left out."""

EXPECTED = (ScreenColumn("STARTS", may_fold=True), ScreenColumn("ENDS", may_fold=True))

SHARING_PLACE: Final = 5  # before STEPS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ps", epilog="Example: [bold]colane ps --all --label run=a[/bold]")(list_jobs)


def list_jobs(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also the jobs that have ended.")] = False,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only jobs of this user.")] = None,
    label: jobs.LabelOption = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N|all",
            show_default="100; with --json and --format all",
            help="At most so many that run, that wait and that have ended.",
        ),
    ] = None,
    elements: Annotated[
        bool, typer.Option("--elements", "-e", help="Elements of arrays as jobs of their own.")
    ] = False,
    start: Annotated[
        bool, typer.Option("--start", help="When each is expected to start and to end, four times of five.")
    ] = False,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """List jobs that wait or run: how far they are, how fast, and why they wait.

    TIME is how long a job has run, or waited so far. ETA is how long it will still run at its present speed,
    with ~ where speed or length is a guess.

    A job that has used nothing of its GPUs for long is idle, and REASON says for how long.

    A job that has made no step for ten times as long as one usually takes it, and for 5 s at least, has a speed of 0.

    Of jobs that share GPUs: LANE, and how it stands in it (TURN). SHARE is the part it has had of the time it
    wanted its lane, and in brackets the part it gets while all of them want to run. SLOWDOWN is its step time over
    that alone, as seen, and as predicted in brackets.

    Of jobs that answer requests LATENCY is what 99 % of the last answers took at most, from the request on, and in
    brackets the objective, with ! where it is not kept.

    SAVED is how long ago a job saved its state, as far as is known.

    An array is one line, which says how its elements stand; those that run or have been touched are jobs of their own,
    named as 12[3].

    Of jobs whose cores are tuned, CORES is what they asked for, have, and were found to have use for.
    """
    for_programs = as_json or template is not None
    labels, most = jobs.parse_labels(label), _limit(limit or ("all" if for_programs else str(LIMIT)))
    with jobs.client() as scheduler:
        idle = {} if for_programs else jobs.idle_of(scheduler)
        if most is None:
            found, left_out = _whole(scheduler, labels, user, everything=everything), ""
            found = [job for job in found if elements or job.get("array_id") is None]
        else:
            listed = scheduler.listing(most, ended=everything, user=user, labels=labels, elements=elements)
            found, left_out = listed["jobs"], _left_out(listed["left_out"])
    if printed(template, as_json, map(jobs.with_figures, found), known=jobs.LATE_FIELDS):
        return
    table(found, idle, expects=start)
    if not found:
        output.note(_nothing(everything=everything, filtered=bool(labels or user)))
    if left_out:
        output.note(f"not shown: {left_out}; --limit all shows all")


def _limit(text: str) -> int | None:
    """Return how many jobs of each sort are listed, None for all.

    Raises MisuseError: it is neither a number nor `all`.
    """
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= LISTED_MAX and len(text) < 6):
        raise MisuseError(f"--limit: must be all, or a number of jobs from 1 to {LISTED_MAX}, got {text[:40]!r}")
    return int(text)


def _left_out(counts: LeftOutObject) -> str:
    """Say which jobs are not shown; empty when all are."""
    said = [f"{counts['running']} more that run"] if counts["running"] else []
    said += [f"{counts['queued']} more that wait"] if counts["queued"] else []
    said += ["older ones that have ended"] if counts["ended"] else []
    return ", ".join(said)


def _whole(scheduler: Client, labels: dict[str, str], user: str | None, *, everything: bool) -> list[JobObject]:
    """Return all jobs of those asked for."""
    known = _all(scheduler, labels, everything=everything)
    found = [job for job in known if jobs.carries(job, labels) and user in (None, job["user"])]
    _ask_why(scheduler, found)
    return found


def _nothing(*, everything: bool, filtered: bool) -> str:
    """Say that there are no jobs of those asked for."""
    such = " of those asked for" if filtered else ""
    return f"no job{such} is known" if everything else f"no job{such} waits or runs; ended ones: colane ps --all"


def table(found: list[JobObject], idle: Mapping[int, float] = MappingProxyType({}), *, expects: bool = False) -> None:
    """Print jobs, `idle` for how long; of the columns of sharing only those with something to show."""
    extra = [_sharing(job) for job in found]
    kept = [place for place in range(len(SHARING)) if any(cells[place] for cells in extra)]
    rows = [_row(job, name, idle.get(job["id"])) for job, name in zip(found, jobs.names_apart(found), strict=True)]
    for row, cells in zip(rows, extra, strict=True):
        row[SHARING_PLACE:SHARING_PLACE] = [cells[place] for place in kept]
    columns = [*COLUMNS[:SHARING_PLACE], *(SHARING[place] for place in kept), *COLUMNS[SHARING_PLACE:]]
    if expects:
        columns[-1:-1] = EXPECTED
        for row, job in zip(rows, found, strict=True):
            row[-1:-1] = [jobs.expected_text(job, what) or output.UNKNOWN for what in ("start", "end")]
    output.print_table(columns, rows)


def _sharing(job: JobObject) -> list[str]:
    """Return lane, turn, share got of asked, slowdown seen of predicted, latency, cores, age of its state, or ""."""
    return [*_lanes(job), jobs.latency_text(job), _cores(job), jobs.saved_text(job)]


def _cores(job: JobObject) -> str:
    """Return cores asked, granted and useful of a job that runs and whose cores are tuned."""
    asked = job.get("needs", {}).get("cores")
    if job.get("constraints", {}).get("cores") is None or not job["booked_cores"]:
        return ""
    useful = job.get("cores_useful")
    return f"{asked}/{len(job['booked_cores'])}/{output.UNKNOWN if useful is None else useful}"


def _lanes(job: JobObject) -> list[str]:
    sharing, sample = job.get("sharing"), job.get("progress")
    if sharing is None:
        return [""] * 4
    lanes = ",".join(str(lane) for lane in sorted(set(job["lanes"])))
    turn = (sample.get("turn") if sample else None) or ""
    if job["state"] == "paused":
        return [lanes, turn, "", ""]
    return [lanes, turn, jobs.share_text(job), jobs.slowdown_text(job)]


def _all(scheduler: Client, labels: dict[str, str], *, everything: bool) -> Iterator[JobObject]:
    """Yield ended jobs before live ones, so that the newest stand last; one that ends meanwhile comes once."""
    live = scheduler.live_jobs()
    if everything:
        ids = {job["id"] for job in live}
        yield from (job for job in scheduler.finished_jobs(labels=labels) if job["id"] not in ids)
    yield from live


def _ask_why(scheduler: Client, found: list[JobObject]) -> None:
    """Put the present reasons of the first waiting jobs into them: what the list brings is from their last move."""
    waiting = [job for job in found if job["state"] == "queued"]
    for job in waiting[:WHY_MAX]:
        with suppress(Refused):  # it has ended and was forgotten meanwhile
            reason = scheduler.why(job["id"])
            job["why"], job["reason"] = reason["why"], reason["sentence"]


def _row(job: JobObject, name: str, idle_s: float | None) -> list[str]:
    facts = facts_of(job)
    rate = facts["now_steps_per_s"]
    return [
        jobs.listed_name(job),
        name,
        job["user"],
        facts["word"] or job["state"],
        ",".join(facts["gpus"] or facts["nodes"]) or (job["node"] or ""),
        jobs.progress_text(job),
        "" if rate is None else output.number(rate),
        output.duration(facts["spent_s"]),
        jobs.left_text(job),
        _short_reason(job) if idle_s is None else f"idle {output.duration(idle_s)}",
    ]


def _short_reason(job: JobObject) -> str:
    """Return the code of a waiting or ended job's reason, or that it makes no steps; one that runs well needs none.

    Of an array, how its elements stand.
    """
    array = job.get("elements")
    if array is not None:
        held = f"{job['why']}: " if any(hold["kind"] in HOLDS for hold in job["holds"]) else ""
        return held + jobs.elements_text(array)
    if job.get("stalled"):
        return jobs.stalled_text(job)
    if job["state"] in {"queued", "paused"} or jobs.is_slow(job) or jobs.has_ended(job):
        return job["why"] or ""
    return ""
