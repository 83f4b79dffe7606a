"""What several commands make of the scheduler's job objects."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.client.client import Client, Event


def parse_job_id(text: str) -> int:
    """Return the id of a job.

    Raises:
        typer.BadParameter: It is none.
    """
    if not text.isascii() or not text.isdecimal() or not int(text[:JOB_DIGITS_MAX]) > 0 or len(text) > JOB_DIGITS_MAX:
        raise typer.BadParameter(f"must be the number of a job, as 'colane ps --all' shows it, got {text[:40]!r}")
    return int(text)


JOB_DIGITS_MAX: Final = 15
JobArgument = Annotated[
    int, typer.Argument(metavar="JOB", parser=parse_job_id, show_default=False, help="Id of the job.")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="NAME=VALUE", help="Only jobs with this label; may be repeated."),
]

SIGNALLED: Final = 128
"""A shell adds this to the signal a program died of."""


def client() -> Client:
    """Return a client of the scheduler that the environment names."""
    from colane.client.client import Client  # noqa: PLC0415 - imported late

    return Client()


def saved_text(job: JobObject) -> str:
    """Return how long ago a job that has not ended saved its state; empty where that is not known."""
    saved_s = job.get("saved_s")
    return "" if saved_s is None or has_ended(job) else output.duration(max(0.0, time.time() - saved_s))


def parse_labels(texts: Sequence[str] | None, option: str = "--label") -> dict[str, str]:
    """Return `name=value` texts as a mapping.

    Raises:
        MisuseError: One is not of this form.
    """
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


def progress_text(job: JobObject) -> str:
    """Return `steps/total`, empty of a job that reports no steps."""
    steps, total = job.get("steps") or 0, job.get("steps_total")
    if total:
        return f"{steps}/{total}"
    if is_guessed(job) and steps:
        return f"{steps}/~{job['steps_total_learned']}"
    return str(steps) if steps else ""


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


def steps_per_s(job: JobObject) -> float | None:
    """Return how fast it steps, from the mean of its recent steps; 0 while it makes none any more."""
    if job.get("stalled"):
        return 0.0
    sample = job.get("progress")
    step_s = sample.get("step_mean_s") if sample else None
    return 1 / step_s if step_s else None


def stalled_text(job: JobObject, *, is_whole: bool = False) -> str:
    """Return for how long a running job has made no step, and how long one usually takes it; empty where it steps."""
    stalls = job.get("stalled")
    if not stalls:
        return ""
    usually = f" (usually {output.number(stalls['step_s'], 2)} s)" if is_whole else ""
    return f"no step for {output.duration(stalls['no_step_s'])}{usually}"


def believed_steps_per_s(job: JobObject) -> float | None:
    """Return how fast it is believed to step where it runs, waiting for its turns included; None while unknown."""
    rate = job.get("rate")
    return (rate["steps_per_s"] or None) if rate else None


def eta_s(job: JobObject) -> float | None:
    """Return how long it will still run at its present speed, before its first step at the one it is believed to have.

    None of a job that does not run, and where neither is known.
    """
    seen = steps_per_s(job)
    speed = believed_steps_per_s(job) if seen is None else seen * _turned(job)
    total = job["steps_total_learned"] if is_guessed(job) else job.get("steps_total")
    if job["state"] not in {"running", "running-protected"} or not speed or not total:
        return None
    return max(int(total) - int(job.get("steps") or 0), 0) / speed


def _turned(job: JobObject) -> float:
    """Part of the time in which it has its turn: step times are measured without the waiting. 1 without turns."""
    sample, sharing = job.get("progress"), job.get("sharing")
    if not sample or not sharing or not sharing["mates"] or sample.get("turn") not in {"running", "waiting"}:
        return 1.0
    return sample.get("turn_share_ratio") or 1.0


def eta_text(job: JobObject) -> str:
    """Return how long it will still run; with `~` where its steps or their speed are a guess, empty if unknown."""
    left_s = eta_s(job)
    if left_s is None:
        return ""
    return f"~{output.duration(left_s)}" if is_guessed(job) or steps_per_s(job) is None else output.duration(left_s)


def is_guessed(job: JobObject) -> bool:
    """Whether its number of steps is what the last of its kind took; one that goes beyond that has proved it wrong."""
    learned = job.get("steps_total_learned")
    return not job.get("steps_total") and learned is not None and int(job.get("steps") or 0) < learned


def share_text(job: JobObject) -> str:
    """Return the part a job had of the time it wanted its lane, its share in brackets: `48 % (50 %)`; empty if none."""
    sharing, sample = job.get("sharing"), job.get("progress")
    if not sharing or not sharing["mates"] or not sample or not sample.get("turn"):
        return ""
    got, asked = sample.get("turn_share_ratio"), sharing["share_asked_ratio"]
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


def is_slow(job: JobObject) -> bool:
    """Whether the guard has said that co-runners slow a job more than predicted, and it still is."""
    sharing = job.get("sharing")
    if not sharing:
        return False
    measured, predicted = sharing["slowdown_measured"], sharing["slowdown_predicted"]
    return job["why"] == "slow-together" and measured is not None and predicted is not None and measured > predicted


def spent_s(job: JobObject) -> float | None:
    """Return how long it has run since its first start, or waited since its submission."""
    since = job.get("first_start_s") or job["submit_s"]
    ended_s = job.get("end_s")
    return max((time.time() if ended_s is None else ended_s) - since, 0.0)


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


def _tells_of_end(event: Event, waiting: Container[int]) -> bool:
    """Whether it is the end of one of these jobs."""
    from colane.model.job import ENDED  # noqa: PLC0415 - as above

    return event.kind == "job" and event.body["job"] in waiting and event.body["state"] in ENDED


def until_ended(scheduler: Client, ids: Sequence[int]) -> Iterator[JobObject]:
    """Yield each job once it has ended, as they end. Waits on the scheduler's events, not on a clock."""
    waiting = set(ids)
    after = int(scheduler.health()["events"])
    for job_id in ids:
        job = scheduler.job(job_id)
        if has_ended(job):
            waiting.discard(job_id)
            yield job
    if not waiting:
        return
    for event in scheduler.events(after):
        if _tells_of_end(event, waiting):
            waiting.discard(event.body["job"])
            yield scheduler.job(event.body["job"])
            if not waiting:
                return
    raise FailureError(f"the scheduler stopped before job {min(waiting)} had ended")
