"""What several commands make of the scheduler's job objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from colane.cli import output
from colane.cli.completing import complete_jobs
from colane.cli.errors import FailureError, MisuseError
from colane.client.told import facts_of
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.events import JobEventObject
    from colane.api.jobs import ArrayObject, JobObject
    from colane.api.seeing import BudgetObject
    from colane.client.client import Client, Event


class JobName(NamedTuple):
    """A job as it is named on a command line: by its id, or as elements of an array."""

    job: int  # the job, or the array
    elements: str | None = None  # indexes of its elements, as text; None for a job named by its id alone

    def __str__(self) -> str:
        """As it was written: `12`, or `12[3]`."""
        return str(self.job) if self.elements is None else f"{self.job}[{self.elements}]"


def parse_job_name(text: str) -> JobName:
    """Return the job, or the elements of an array, that a word names: `12`, `12[3]`; `@` is the caller's last job.

    Raises:
        typer.BadParameter: It names none.
        SchedulerError: Which job was the last cannot be asked.
    """
    from colane.model.arrays import parse_name  # noqa: PLC0415 - its dataclasses take some milliseconds

    back = _BACK.fullmatch(text.strip())
    try:
        job, indexes = parse_name(text if back is None else f"{_last_job(int(back['back'] or 0))}{back['elements']}")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return JobName(job, None if indexes is None else str(indexes))


_BACK: Final = re.compile(r"@(~(?P<back>[0-9]{1,5}))?(?P<elements>\[.*|)", re.ASCII)


def _last_job(back: int) -> int:
    from colane.client.errors import Refused  # noqa: PLC0415 - as above

    with client() as scheduler:
        try:
            return scheduler.last_job(back)
        except Refused as refused:
            raise typer.BadParameter(str(refused)) from refused


def ids_of(scheduler: Client, names: Iterable[JobName]) -> dict[int, str]:
    """Return the ids of jobs, in order and each once, and how they are named.

    Raises MisuseError: one is named as an element and is none.
    """
    return {job: name for each in names for job, name in _ids_of(scheduler, each)}


def id_of(scheduler: Client, name: JobName) -> int:
    """Return the id of the one job that is named.

    Raises MisuseError: several are, or one that is no element is named as one.
    """
    found = list(ids_of(scheduler, [name]))
    if len(found) > 1:
        raise MisuseError(f"{name} names {len(found)} jobs, and one is asked for")
    return found[0]


def _ids_of(scheduler: Client, name: JobName) -> Iterator[tuple[int, str]]:
    from colane.model.arrays import each_of, element_id, known_indexes  # noqa: PLC0415 - as above
    from colane.model.phases import Element, JobId  # noqa: PLC0415

    if name.elements is None:
        yield name.job, str(name.job)
        return
    array = scheduler.job(name.job).get("elements")
    if array is None:
        raise MisuseError(f"job {name.job} is no array: name it without [{name.elements}]")
    known = known_indexes(array["indexes"])
    found, missing = known.ordinals_of(known_indexes(name.elements))
    if missing is not None:
        raise MisuseError(f"array {name.job} has no element {missing}: it has {array['indexes']}")
    for ordinal in each_of(found):
        job = element_id(name.job, ordinal)
        yield job, str(Element(JobId(name.job), known.index_of(ordinal)))


def name_of(job: JobObject) -> str:
    """Return how a job is named: `16`, of an element `12[3]`."""
    index = job.get("array_index")
    return str(job["id"]) if index is None else f"{job['array_id']}[{index}]"


JobArgument = Annotated[
    JobName,
    typer.Argument(
        metavar="JOB",
        parser=parse_job_name,
        autocompletion=complete_jobs,
        show_default=False,
        help="Id of the job; 12[3] is element 3 of array 12, @ your last job, @~1 the one before.",
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="NAME=VALUE", help="Only jobs with this label; may be repeated."),
]

LATE_FIELDS: Final = (
    "exit_code", "signal", "outcome", "detail", "log_bytes", "step_durations_s", "log_truncated", "attempts", "command",
    "workdir",
)  # fmt: skip
"""Fields that jobs have once they have ended, or that are shown of one job alone, and to its owner."""

SIGNALLED: Final = 128  # a shell adds this to the signal a program died of


def client() -> Client:
    """Return a client of the scheduler that the environment names."""
    from colane.client.client import Client  # noqa: PLC0415 - imported late

    return Client()


def idle_of(scheduler: Client) -> dict[int, float]:
    """Return for how long jobs have used nothing of what they hold; none of an older scheduler's."""
    from colane.client.errors import Refused  # noqa: PLC0415 - as above

    with suppress(Refused):
        return {one["job"]: one["idle_s"] for one in scheduler.overview()["idle"]}
    return {}


def budgets_of(scheduler: Client) -> list[BudgetObject]:
    """Return what is used of budgets; none of an older scheduler's."""
    from colane.client.errors import Refused  # noqa: PLC0415 - as above

    with suppress(Refused):
        return scheduler.budgets()
    return []


def with_figures(job: JobObject) -> dict[str, object]:
    """Return a job with its present speed and what is left by the names that scripts know."""
    return {**job, "steps_per_s": facts_of(job)["now_steps_per_s"], "eta_s": facts_of(job)["left_s"]}


def saved_text(job: JobObject) -> str:
    """Return how long ago a job that has not ended saved its state; empty where that is not known."""
    ago_s = facts_of(job)["saved_ago_s"]
    return "" if ago_s is None else output.duration(ago_s)


def parse_labels(texts: Sequence[str] | None, option: str = "--label") -> dict[str, str]:
    """Return `name=value` texts as a mapping. Raises MisuseError: one is not of this form."""
    labels = {}
    for each in texts or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise MisuseError(f"{option}: must be NAME=VALUE, got {each!r}")
        labels[name] = value
    return labels


def carries(job: JobObject, labels: Mapping[str, str]) -> bool:
    """Whether a job has all these labels."""
    return all(job["labels"].get(name) == value for name, value in labels.items())


def listed_name(job: JobObject) -> str:
    """Return a job's name in a list: of an array `12[0-99%8]`."""
    array = job.get("elements")
    if array is None:
        return name_of(job)
    indexes = array["indexes"] if len(array["indexes"]) <= INDEXES_SHOWN else f"{array['indexes'][:INDEXES_SHOWN]}..."
    return f"{job['id']}[{indexes}" + ("]" if array["throttle"] is None else f"%{array['throttle']}]")


INDEXES_SHOWN: Final = 24


def elements_text(array: ArrayObject) -> str:
    """Return how the elements of an array stand: `8 running, 32 waiting, 60 of 100 ended (2 failed)`."""
    ended = array["succeeded"] + array["failed"] + array["cancelled"]
    numbers = ((array["running"], "running"), (array["waiting"], "waiting"))
    told = [f"{number} {word}" for number, word in numbers if number]
    badly = ((array["failed"], "failed"), (array["cancelled"], "cancelled"))
    bad = ", ".join(f"{number} {word}" for number, word in badly if number)
    return ", ".join([*told, f"{ended} of {array['count']} ended" + (f" ({bad})" if bad else "")])


def progress_text(job: JobObject) -> str:
    """Return `steps/total`, or steps alone; empty of a job that reports none and tells no total."""
    facts = facts_of(job)
    if facts["steps_total"]:
        return f"{facts['steps']}/{facts['steps_total']}"
    return str(facts["steps"]) if facts["steps"] else ""


def names_apart(found: Sequence[JobObject]) -> list[str]:
    """Return a name for each job: of different scripts of one name with the directory, or all that tells them apart."""
    scripts: dict[str, set[str]] = {}
    for job in found:
        scripts.setdefault(job["name"], set()).add(_script(job))
    return [_name_among(job, scripts[job["name"]]) for job in found]


def _name_among(job: JobObject, scripts: set[str]) -> str:
    """Its name, where that is its script's and others have it, too: the script within its project."""
    script, name = _script(job), str(job["name"])
    if len(scripts) == 1 or script.partition("@")[0].rpartition("/")[2] != name:
        return name
    short = script.partition("@")[0]
    return short if sum(each.partition("@")[0] == short for each in scripts) == 1 else script


def _script(job: JobObject) -> str:
    """What its family names first: `net/main.py@1a2b3c4d` or so where that was derived from its command."""
    return str(job.get("family") or "").partition(" ")[0]


def stalled_text(job: JobObject, *, is_whole: bool = False) -> str:
    """Return for how long a running job has made no step, and how long one usually takes it; empty where it steps."""
    stalls = job.get("stalled")
    if not stalls:
        return ""
    usually = f" (usually {output.number(stalls['step_s'], 2)} s)" if is_whole else ""
    return f"no step for {output.duration(stalls['no_step_s'])}{usually}"


def left_text(job: JobObject) -> str:
    """Return how long it will still run; with `~` where its steps or their speed are a guess, empty if unknown."""
    facts = facts_of(job)
    left_s = facts["left_s"]
    if left_s is None:
        return ""
    is_guess = facts["is_speed_believed"] or facts["left_by"] == "family"
    return f"{'~' * is_guess}{output.duration(left_s)}"


def expected_text(job: JobObject, what: str, now_s: float | None = None) -> str:
    """Return when a job is expected to `start` or to `end`, in words; empty where that is not foreseen.

    With a time it is also said how old that is, and by what the job's own length is known.
    """
    facts = facts_of(job)
    told = facts.get("expected_start") if what == "start" else facts.get("expected_end")
    if told is None or now_s is None or told["p50_s"] is None:
        return "" if told is None else told["sentence"]
    return f"{told['sentence']}; said {output.duration(max(0.0, now_s - told['said_s']))} ago, length {told['basis']}"


def share_text(job: JobObject) -> str:
    """Return the part a job had of the time it wanted its lane, its share in brackets: `48 % (50 %)`; empty if none."""
    got, asked = facts_of(job)["share_got_ratio"], facts_of(job)["share_asked_ratio"]
    if got is None:
        return ""
    return f"{percent(got)}" if asked is None else f"{percent(got)} ({percent(asked)})"


def slowdown_text(job: JobObject) -> str:
    """Return how much slower a job goes than alone, and in brackets than predicted: `2.1 (2.0)`; empty if unknown."""
    sharing = job.get("sharing")
    if not sharing:
        return ""
    measured, predicted = sharing["slowdown_measured"], sharing["slowdown_predicted"]
    if measured is None:
        return "" if predicted is None else f"- ({predicted:.2f})"
    return f"{measured:.2f}" if predicted is None else f"{measured:.2f} ({predicted:.2f})"


def latency_text(job: JobObject) -> str:
    """Return what 99 % of the last answers took, and the objective: `4.2 ms (100 ms)`, with ! where it is missed."""
    sample = job.get("progress")
    took_s = sample.get("latency_p99_s") if sample else None
    if took_s is None:
        return ""
    objective_s = objective_of(job)
    return output.moment(took_s) + ("" if objective_s is None else f" ({output.moment(objective_s)})") + late(job)


def objective_of(job: JobObject) -> float | None:
    """Return how long an answer of it may take; None where nothing is asked."""
    needs = job.get("needs")
    return needs.get("latency_s") if needs else None


def late(job: JobObject) -> str:
    """Return a mark where a server does not keep its objective with 99 % of its last answers; else nothing."""
    sample, objective_s = job.get("progress"), objective_of(job)
    took_s = sample.get("latency_p99_s") if sample else None
    return "!" if took_s is not None and objective_s is not None and took_s > objective_s else ""


def is_slow(job: JobObject) -> bool:
    """Whether the guard has said that co-runners slow a job more than predicted, and it still is."""
    sharing = job.get("sharing")
    if not sharing:
        return False
    measured, predicted = sharing["slowdown_measured"], sharing["slowdown_predicted"]
    return job["why"] == "slow-together" and measured is not None and predicted is not None and measured > predicted


def exit_code_of(job: JobObject) -> int:
    """Return the code a shell would report of an ended job's process; never 0 of one that did not succeed."""
    if job["state"] == "succeeded":
        return 0
    code, signal = job.get("exit_code"), job.get("signal")
    return code or (SIGNALLED + signal if signal else 1)


def has_ended(job: JobObject) -> bool:
    """Whether nothing more will happen to it."""
    from colane.model.job import ENDED  # noqa: PLC0415 - its dataclasses take some milliseconds

    return job["state"] in ENDED


def _told_by(event: Event, arrays: Mapping[int, Sequence[int]]) -> Sequence[int]:
    """Return the jobs that may have ended with an event; elements of an array may do so without one of their own."""
    if event.kind != "job":
        return ()
    from colane.model.job import ENDED  # noqa: PLC0415 - as above

    change: JobEventObject = event.body
    return [
        *([change["job"]] if change["state"] in ENDED else ()),
        *(arrays.get(change["job"], ()) if change.get("happened") == "elements-cut" else ()),
    ]


def until_ended(scheduler: Client, ids: Sequence[int]) -> Iterator[JobObject]:
    """Yield each job once it has ended, as they end. Waits on the scheduler's events, not on a clock."""
    waiting = dict.fromkeys(ids)
    arrays: dict[int, list[int]] = {}
    after = int(scheduler.health()["events"])
    for job_id in ids:
        job = scheduler.job(job_id)
        if has_ended(job):
            del waiting[job_id]
            yield job
        elif (array_id := job.get("array_id")) is not None:
            arrays.setdefault(array_id, []).append(job_id)
    for event in scheduler.events(after) if waiting else ():
        for job_id in _told_by(event, arrays):
            if job_id in waiting and has_ended(job := scheduler.job(job_id)):
                del waiting[job_id]
                yield job
        if not waiting:
            break
    if not waiting:
        return
    raise FailureError(f"the scheduler stopped before job {min(waiting)} had ended")
