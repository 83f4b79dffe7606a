"""`colane show`: everything that is known of a job."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from math import isclose
from typing import TYPE_CHECKING, Any, Final, cast

import typer

from colane.cli import output
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.jobs.eff import summary, told
from colane.cli.output import ScreenColumn
from colane.client.errors import Refused
from colane.client.told import facts_of, in_force
from colane.model.field_values import BYTES_PER_S, SECONDS, Amount, Values, describe_sizes
from colane.model.job_fields import JOB_FIELDS, Shelf
from colane.model.secrets import HIDDEN
from colane.model.sentences import fill
from colane.model.time_spent import TimeSpent
from colane.model.words import count, percent, plural

if TYPE_CHECKING:
    from colane.api.jobs import FactsObject, JobObject, NeedsObject, StoryLineObject, WhyAnswer
    from colane.api.of_record import ProgressObject
    from colane.api.seeing import EfficiencyAnswer
    from colane.client.client import Client

SPENT = tuple([name.removesuffix("_s") for name in TimeSpent._fields])
"""Where a job's time goes, in the order of its life."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show", epilog="Example: [bold]colane show 7[/bold]")(show)


def show(job: jobs.JobArgument, as_json: output.Json = False, template: Format = None) -> None:
    """Show all that is known of a job: its needs, where it runs, how fast, and its story so far."""
    with jobs.client() as scheduler:
        job_id = jobs.id_of(scheduler, job)
        found = scheduler.job(job_id)
        reason = scheduler.why(job_id)
        used = None if as_json or found["first_start_s"] is None else _used(scheduler, job_id)
    whole = jobs.with_figures(found)
    if printed(template, as_json, [whole], whole, known=jobs.LATE_FIELDS):
        return
    output.print_fields(_fields(found, reason))
    output.say()
    output.print_table(
        (
            ScreenColumn("WHEN"),
            ScreenColumn("AFTER", is_number=True),
            ScreenColumn("STATE"),
            ScreenColumn("REASON", may_fold=True),
        ),
        [_move(move, found["submit_s"]) for move in found["story"]],
    )
    for line in _used_of_asked(used):
        output.say(line)


def _used(scheduler: Client, job_id: int) -> EfficiencyAnswer | None:
    """Ask what it used; None of a scheduler that is too old to say it."""
    with suppress(Refused):
        return scheduler.efficiency(job_id)
    return None


def _used_of_asked(used: EfficiencyAnswer | None) -> Iterator[str]:
    """Yield what it used of what it asked for, and what to change first: the end of its story."""
    said = "" if used is None else summary(used)
    if used is not None and said:
        yield ""
        yield f"used of asked: {said}"
        yield from islice(told(used), 1)


def _fields(job: JobObject, reason: WhyAnswer) -> Iterator[tuple[str, str]]:
    yield "job", f"{jobs.name_of(job)} ({job['name']})"
    yield from _array(job)
    yield "state", facts_of(job)["word"] or job["state"]
    yield "reason", reason["sentence"]
    yield from (("now" if place == 0 else "", said) for place, said in enumerate(reason.get("now") or ()))
    yield "user", output.text(job["user"])
    yield from _command(job)
    needs = job["needs"]
    kind = f" of type {needs['gpu_type']}" if needs["gpu_type"] else ""
    yield "needs", ", ".join([_gpus(needs) + kind, *(text for _, text in _said(needs, Shelf.NEEDS))])
    yield from _in_force(job)
    yield "runs on", place(job)
    yield from _sharing(job)
    yield from _rate(job)
    yield from _cores(job)
    yield from _checkpoint(job)
    of_each = " of each GPU" if job["needs"].get("batch_per_gpu") else ""
    yield "family", job["family"] + (f", batch size {job['batch_size']}{of_each}" if job["batch_size"] else "")
    yield from _labels(job)
    yield from _said(job, Shelf.JOB)
    yield "submitted", _when(job["submit_s"])
    yield "started", _when(job["first_start_s"]) + (f" (attempt {job['attempt']})" if job["attempt"] > 1 else "")
    yield "ended", _when(job["end_s"])
    for name in ("start", "end"):
        if told := jobs.expected_text(job, name, time.time()):
            yield f"expected {name}", told
    yield from _time_spent(job)
    yield from _ending(job)
    yield from _progress(job)


def _array(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield how the elements of an array stand, and of an element its own id."""
    array = job.get("elements")
    if array is not None:
        most = "" if array["throttle"] is None else f", at most {array['throttle']} at once"
        yield "array", f"{count(array['count'], 'element')}, {array['indexes']}{most}"
        yield "elements", jobs.elements_text(array)
    if job.get("array_id") is not None:
        yield "element", f"{job['array_index']} of array {job['array_id']}, id {job['id']}"


def _command(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield what it runs and where, which its owner and operators are told."""
    command, workdir = job.get("command"), job.get("workdir")
    if command and command[3:4] == ["sbatch"]:
        from colane.integrations.slurm.launch import batch_command  # noqa: PLC0415 - of jobs of Slurm's verbs alone

        if (batch := batch_command(command)) is not None:
            command = None
            yield "command", str(batch)
    if command:
        yield "command", " ".join(word if HIDDEN in word and " " not in word else shlex.quote(word) for word in command)
    if workdir:
        yield "directory", workdir
    if output := job.get("output"):
        yield "output", output


def _sharing(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield the jobs it shares its GPUs with, and what that costs it."""
    sharing = job.get("sharing")
    if sharing is None:
        return
    lanes = ", ".join(str(lane) for lane in sorted(set(job["lanes"])))
    if sharing["lane_mates"]:
        asked = sharing["share_asked_ratio"]
        share = "" if asked is None else f", {percent(asked)} of its time asked"
        yield "takes turns", f"with {_names(sharing['lane_mates'])} in lane {lanes}{share}"
    if sharing["others"]:
        yield "runs", f"in lane {lanes}, at the same time as {_names(sharing['others'])} in other lanes"
    measured, predicted = sharing["slowdown_measured"], sharing["slowdown_predicted"]
    seen = "not known yet" if measured is None else f"{measured:.2f} times its step time alone"
    yield "slowdown", seen + ("" if predicted is None else f", predicted {predicted:.2f}")


def _rate(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield how fast it is believed to go, where that is not simply as fast as alone."""
    rate = job.get("rate")
    if rate is not None and rate["source"] != "given":
        said = f"{rate['ratio']:.2f} of that alone, give or take {percent(rate['spread_ratio'])}"
        yield "expected speed", f"{said} ({rate['sentence']})"


def _cores(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield cores asked, granted and found to be of use, and its category, of a job whose cores are tuned."""
    needs = job["needs"]
    if job.get("constraints", {}).get("cores") is None:
        return
    useful = job.get("cores_useful")
    seen = "not known yet" if useful is None else str(useful)
    yield "cores", f"{needs['cores']} asked, {len(job['booked_cores'])} granted; of use: {seen}"
    yield "category", needs["category"] + (" (a default start)" if needs["category"] == "unknown" else "")


def _checkpoint(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield how it is asked to save its state, and what it has saved."""
    contract = in_force(job, "checkpoint")
    if contract is None:
        return
    left = f"{output.duration(contract['lead_s'])} to save at {contract['signal']}"
    failed = f", did not {count(job['saves_failed'], 'time')}" if job.get("saves_failed") else ""
    age = jobs.saved_text(job)
    known = f"{count(job['steps_kept'], 'step')} kept by earlier attempts" if job.get("steps_kept") else ""
    yield "checkpoint", "; ".join(filter(None, [f"saved {age} ago" if age else "none known yet", known, left + failed]))


def _time_spent(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield where its time has gone, if it has had GPUs."""
    told = facts_of(job)["time_spent"]
    if not told or job["first_start_s"] is None:
        return
    spent = cast("Mapping[str, float]", told)
    parts = [f"{output.duration(spent[f'{name}_s'])} {name}" for name in SPENT if spent[f"{name}_s"] > 0]
    lost = f"; {output.duration(job['lost_s'])} of the running was lost" if job.get("lost_s") else ""
    yield "time", ", ".join(parts) + lost


def _names(ids: list[int]) -> str:
    return f"{plural(len(ids), 'job')} {', '.join(map(str, ids))}"


def _labels(job: JobObject) -> Iterator[tuple[str, str]]:
    if job["labels"]:
        yield "labels", ", ".join(f"{name}={value}" for name, value in job["labels"].items())


def _ending(job: JobObject) -> Iterator[tuple[str, str]]:
    if job.get("exit_code") is not None:
        yield "exit code", str(job["exit_code"])
    if job.get("signal"):
        yield "signal", str(job["signal"])
    if detail := job.get("detail"):
        yield "detail", detail


def _progress(job: JobObject) -> Iterator[tuple[str, str]]:
    done, sample = jobs.progress_text(job), job["progress"]
    if sample and sample.get("note"):
        yield "note", sample["note"]
    if done:
        yield from _steps(job, done)
    if sample:
        yield from _measured(sample) if done else ()
        yield from _answers(job, sample)
        yield from _turns(sample)


def _steps(job: JobObject, done: str) -> Iterator[tuple[str, str]]:
    """Yield how far it is, how fast, and how long it will take."""
    facts, left = facts_of(job), jobs.left_text(job)
    yield "steps", done
    stalled = jobs.stalled_text(job, is_whole=True)
    yield "steps/s", f"0, {stalled}" if stalled else _speed(facts)
    if left:
        low_s, high_s = facts.get("left_p10_s"), facts.get("left_p90_s")
        is_wide = low_s is not None and high_s is not None and low_s < high_s
        within = f"; {output.duration(low_s)} to {output.duration(high_s)}" if is_wide else ""
        yield "time left", left + fill(BY.get(facts["left_by"] or "", ""), {"family": job["family"], "within": within})


BY: Final[Mapping[str, str]] = {
    "family": " (as long as others of {family} ran{within})",
    "limit": " (its time limit)",
}
"""What tells how long is left, where that is not its own steps."""


def _speed(facts: FactsObject) -> str:
    """How fast it steps now, in its turns, and on the whole, where these differ."""
    now, in_turn, whole = facts["now_steps_per_s"], facts["in_turn_steps_per_s"], facts["whole_steps_per_s"]
    others = ((in_turn, "in its turns"), (whole, "since its first step"))
    said = [f"{output.number(each)} {where}" for each, where in others if each and now and not isclose(each, now)]
    return output.number(now) + (f" ({', '.join(said)})" if said else "")


def _measured(sample: ProgressObject) -> Iterator[tuple[str, str]]:
    """Yield what was measured of it besides its steps."""
    if sample.get("loss") is not None:
        yield "loss", output.number(sample["loss"], 4)
    if sample.get("peak_bytes") is not None:
        peak, between = output.size(sample["peak_bytes"]), output.size(sample["persistent_bytes"])
        by = f" (by {sample['memory_by']})" if sample.get("memory_by") else ""
        yield "memory", f"{peak} at peak, {between} between steps{by}"
    if (occupancy_ratio := sample.get("occupancy_ratio")) is not None:
        yield "occupancy", f"{percent(occupancy_ratio)} of its device (by {sample['occupancy_by']})"


def _answers(job: JobObject, sample: ProgressObject) -> Iterator[tuple[str, str]]:
    """Yield how long its last answers took, whether that keeps its objective, and how long it was idle."""
    if not sample.get("answers"):
        return
    took = (("half", sample["latency_p50_s"]), ("95 %", sample["latency_p95_s"]), ("99 %", sample["latency_p99_s"]))
    said = [f"{part} within {output.moment(took_s)}" for part, took_s in took if took_s is not None]
    kept = "" if jobs.objective_of(job) is None else f"; {'above' if jobs.late(job) else 'within'} its objective"
    yield "answers", f"{sample['answers']:,}; of the last {', '.join(said)}{kept}"
    yield "idle", f"{output.duration(sample['idle_s'])} without a request"


def _turns(sample: ProgressObject) -> Iterator[tuple[str, str]]:
    if sample.get("turn"):
        yield "turn", _turn(sample)


def _turn(sample: ProgressObject) -> str:
    """How it stands in its lane: now, and what it has had."""
    ratio = sample["turn_share_ratio"]
    share = output.UNKNOWN if ratio is None else percent(ratio)
    had = f"{share} of the time it wanted the lane, since its co-runners changed"
    waited = f"waited {output.duration(sample['turn_wait_s'])} for {output.duration(sample['turn_service_s'])}"
    return f"{sample['turn']}; {had}; {waited}{_passing_on(sample)}"


def _passing_on(sample: ProgressObject) -> str:
    """How long turns last, and what passing them on takes."""
    lasts_s, handoff_s = sample.get("turn_quantum_s"), sample.get("turn_handoff_s")
    if lasts_s is None or handoff_s is None:
        return ""
    lasts = f"turns of {lasts_s * 1e3:.3g} ms" if lasts_s else "turns of one step"
    return f"; {lasts}, passed on in {handoff_s * 1e3:.2g} ms"


def _in_force(job: JobObject) -> Iterator[tuple[str, str]]:
    """Yield what of its needs holds otherwise than its owner declared it."""
    constraints = job.get("constraints", {})
    told = [text for _, text in _said(constraints, Shelf.NEEDS, CHANGED)]
    if "time_limit_s" in constraints and constraints["time_limit_s"] is None:
        told.append("no time limit")
    if told:
        yield "in force", ", ".join(told)


CHANGED = frozenset({"time_limit_s", "after", "gpu_memory_bytes"})  # needs of which something else may be in force


def _said(values: Mapping[str, Any], shelf: Shelf, only: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield names and phrases of what was declared; what is as ever, or unknown to an older scheduler, is not said."""
    for field in JOB_FIELDS:
        value = values.get(field.name)
        if only is not None and field.name not in only:
            continue
        if field.shown and field.shelf is shelf and value is not None and value != field.default:
            yield field.name.replace("_", " "), fill(field.shown, {"value": _amount(field.takes, value)})


def _amount(takes: Values, value: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(takes, Amount):
        return value
    if takes.unit is SECONDS:
        return output.duration(value) if value >= 1 else output.moment(value)
    return output.size(value) + ("/s" if takes.unit is BYTES_PER_S else "")


def _gpus(needs: NeedsObject) -> str:
    """How many GPUs: none, one number, or the sizes it can run on."""
    sizes = needs.get("sizes")
    if sizes:
        return f"{describe_sizes(tuple(sizes))} GPUs (best {needs['gpus']})"
    return count(needs["gpus"], "GPU") if needs["gpus"] else "no GPU"


def place(job: JobObject) -> str:
    """Return where a job runs, or its memory lies."""
    if job["node"] is None:
        return output.UNKNOWN
    cores = f", cores {','.join(map(str, job['booked_cores']))}" if job["booked_cores"] else ""
    size_bytes = job.get("on_host_bytes")
    away = "" if size_bytes is None else f", {output.size(size_bytes)} of its GPU memory on the host"
    return (", ".join(job["gpus"]) or job["node"]) + cores + away


def _when(at_s: float | None) -> str:
    if at_s is None:
        return output.UNKNOWN
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _move(move: StoryLineObject, submit_s: float) -> list[str]:
    clock = time.strftime("%H:%M:%S", time.localtime(move["at_s"]))
    return [clock, f"+{output.duration(move['at_s'] - submit_s)}", move["state"], move["sentence"]]
