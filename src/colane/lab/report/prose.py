"""What the numbers say, in sentences: the summary that stands first, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from colane.lab.report.metrics import FAILED, Comparison, GroupMetrics, batch_differences, compare, slowdowns_exec
from colane.lab.report.metrics import run_spans_alone as spans_alone
from colane.lab.report.records import RunGroup, RunRecord
from colane.model.hardware import DISTURBED_RATIO
from colane.model.words import count

SPOKEN_NAMES = {
    "fifo": "FIFO",
    "colocate": "Co-location",
    "colocate-mps": "Co-location with MPS",
    "best-fit": "Best fit",
}
"""How policies are called in a sentence; any other group goes by its own name."""

DIFFERENCES_NAMED_MAX = 3  # a warning names at most this many differences between two batches
FAILED_NAMED_MAX = 5  # failed jobs of a group that are named one by one; the jobs table has them all
TENFOLD_PERCENT = 900.0  # hundreds of percent tell a reader less than a factor
SHARED_FROM_JOBS = 1.1  # jobs at once on a device, in the mean, from which a batch is said to have shared
OTHERS_WORTH_SAYING = 0.05  # other work on a smaller part of the devices does not change what is compared
NEGLIGIBLE_PERCENT = 0.5  # a change that rounds to 0 % is called no change


def spoken(name: str) -> str:
    """A group's name for people."""
    return SPOKEN_NAMES.get(name, name)


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it: `34.2 ms`, `9.34 s`, `98 s`, `12 min 05 s`, `3 h 20 min`."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds >= 0.001 else f"{seconds * 1000:.3f} ms"
    if round(seconds) < 120:
        return f"{seconds:.3g} s" if seconds < 20 else f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest_s:02d} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60:02d} min"


def percent(change: float | None) -> str:
    """A signed change in whole percent; from tenfold on as a factor."""
    if change is None:
        return "-"
    if change >= TENFOLD_PERCENT:
        return f"{1 + change / 100:,.0f} times"
    return "no change" if abs(change) < NEGLIGIBLE_PERCENT else f"{change:+.0f} %"


def sentences(groups: Sequence[RunGroup], metrics: Sequence[GroupMetrics]) -> tuple[str, ...]:
    """What came out: each group against the first one, or the only group by itself. Never empty."""
    ran = [measured for measured in metrics if measured.makespan_s is not None]
    if not ran:
        return ("No finished job has run, so there is nothing to compare.",)
    if len(ran) == 1:
        return (_alone(ran[0]),)
    by_name = {group.name: group for group in groups}
    return tuple(_against(by_name, ran[0], other) for other in ran[1:])


def load_by_others(groups: Sequence[RunGroup]) -> tuple[str, ...]:
    """That other work was done on the devices meanwhile, which makes runs slower and hard to compare; or nothing."""
    used = {group.name: ratio for group in groups if (ratio := _others_ratio(group)) is not None}
    if max(used.values(), default=0.0) < OTHERS_WORTH_SAYING:
        return ()
    named = ", ".join(f"{100 * ratio:.0f} % in the run of {spoken(name)}" for name, ratio in used.items())
    said = (
        f"The devices were busy with other work, too: others used {named}. Times are longer for it, and no job joins "
    )
    return (said + "a device that others use much.",)


def _others_ratio(group: RunGroup) -> float | None:
    """Mean part of the devices of its jobs that others used, by their time on them; None is unknown."""
    seen = [(r.interval_s[1] - r.interval_s[0], r.others_ratio) for r in group.records if r.interval_s is not None]
    known = [(span_s, ratio) for span_s, ratio in seen if ratio is not None]
    whole_s = sum(span_s for span_s, _ in known)
    return sum(span_s * ratio for span_s, ratio in known) / whole_s if whole_s else None


def not_measured(groups: Sequence[RunGroup], metrics: Sequence[GroupMetrics]) -> tuple[str, ...]:
    """What the numbers leave out or do not know, one sentence each."""
    said: list[str] = []
    for group, measured in zip(groups, metrics, strict=True):
        said += [f"{group.name}: {note}" for note in _group_notes(group, measured)]
    said += _slowdown_notes(groups)
    said.append(
        "Devices in use: whether a device had a job. How busy it was is known as a mean of each job; finished jobs "
        "carry no samples of that."
    )
    return tuple(said)


def change_sentence(comparison: Comparison, base_s: float, other_s: float) -> str:
    """As `Co-location ended the batch in 61 s instead of 98 s (-38 %); a job ran 22 % longer on average`."""
    said = f"{spoken(comparison.other)} ended the batch in {duration(other_s)} instead of {duration(base_s)}"
    said += f" ({percent(comparison.makespan_percent)})"
    run_span = comparison.run_span_percent
    return said + ("." if run_span is None else f"; a job ran {as_length(run_span)} on average.")


def as_length(change: float) -> str:
    """A change of a time as people say it: `22 % longer`, `5 % shorter`, `as long`, `12 times as long`."""
    if abs(change) < NEGLIGIBLE_PERCENT:
        return "as long"
    if change >= TENFOLD_PERCENT:
        return f"{percent(change)} as long"
    return f"{abs(change):.0f} % {'longer' if change > 0 else 'shorter'}"


def _alone(measured: GroupMetrics) -> str:
    said = f"{spoken(measured.name)} ended {count(measured.jobs, 'job')} in {duration(measured.makespan_s)}"
    if measured.run_span_s and measured.queue_s:
        said += f"; they ran {duration(measured.run_span_s.mean)} and queued {duration(measured.queue_s.mean)}"
        said += " on average"
    if measured.finished < measured.jobs:
        said += f"; {measured.jobs - measured.finished} of them did not succeed"
    return said + "."


def _against(by_name: dict[str, RunGroup], base: GroupMetrics, other: GroupMetrics) -> str:
    said = change_sentence(compare(base, other), base.makespan_s or 0.0, other.makespan_s or 0.0)
    said = said.removesuffix(".") + _why(by_name[other.name], other) + "."
    lost = [measured for measured in (base, other) if measured.finished < measured.jobs]
    if lost:
        named = " and ".join(f"{m.jobs - m.finished} of {m.jobs} in {m.name}" for m in lost)
        said += f" Not all jobs succeeded: {named} did not."
    differences = batch_differences(by_name[base.name], by_name[other.name])
    if differences:
        named = "; ".join(differences[:DIFFERENCES_NAMED_MAX])
        more = len(differences) - DIFFERENCES_NAMED_MAX
        said += f" The two batches are not the same ({named}{f'; {more} more' if more > 0 else ''})."
    return said


def _why(group: RunGroup, measured: GroupMetrics) -> str:
    """How many jobs ran at once, and what that cost each: the reason of a gain or loss by sharing, or of none."""
    together, slowed = jobs_at_once(group.records) / max(measured.devices, 1), measured.slowdown_exec
    if together < SHARED_FROM_JOBS:
        others = _others_ratio(group)
        if others is None or others < DISTURBED_RATIO:
            return ""
        return f": hardly any jobs shared a device, as other work used {100 * others:.0f} % of them"
    if slowed is None or slowed.jobs < measured.finished:
        return f": {together:.1f} jobs ran at once on a device"
    return f": {together:.1f} jobs ran at once on a device, each {slowed.mean:.2f} times as long as alone"


def jobs_at_once(records: Sequence[RunRecord]) -> float:
    """Mean number of jobs that ran on devices, over the time in which any did; parked and suspended ones did not."""
    spans = sorted(span_s for record in records if record.gpus for span_s in record.ran_s)
    any_s, until_s = 0.0, float("-inf")
    for start_s, end_s in spans:
        any_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return sum(end_s - start_s for start_s, end_s in spans) / any_s if any_s else 0.0


def _group_notes(group: RunGroup, measured: GroupMetrics) -> Iterator[str]:
    if not group.records:
        yield "no finished jobs, so it has no numbers."
        return
    if measured.finished < measured.jobs:
        states = ", ".join(f"{count} {state}" for state, count in sorted(measured.states.items()))
        yield f"means and percentiles leave out jobs that did not succeed ({states})."
    if measured.never_started:
        yield f"{count(measured.never_started, 'job')} never started; no time includes them."
    if measured.restarts:
        yield (
            f"{count(measured.restarts, 'restart')}: run span includes the time between attempts, GPU "
            "activity and the timeline only the last attempt."
        )
    if not group.devices and measured.makespan_s is not None:
        yield "its devices are not known, so idle ones that no job used are not counted in devices in use."
    without = sum(record.step_s is None for record in group.records if record.first_start_s is not None)
    if without:
        yield f"{count(without, 'job')} reported no step times."
    skewed = sum(record.end_s < (record.first_start_s or record.submit_s) for record in group.records)
    skewed += sum((record.first_start_s or record.submit_s) < record.submit_s for record in group.records)
    if skewed:
        yield f"{count(skewed, 'time')} ran backwards (clocks of the machines differ); taken as 0 s."


def _slowdown_notes(groups: Sequence[RunGroup]) -> Iterator[str]:
    alone_s = spans_alone(groups)
    for group in groups:
        known = slowdowns_exec(group, alone_s)
        without = [record for record in group.records if record.succeeded and record.id not in known]
        if without:
            yield (
                f"{group.name}: slowdown is not known for {count(len(without), 'job')}: the same work "
                "(family, batch size, GPUs, steps) never ran alone."
            )


def failed_jobs(groups: Sequence[RunGroup]) -> tuple[str, ...]:
    """One line for each failed job, with why; at most `FAILED_NAMED_MAX` of a group."""
    said: list[str] = []
    for group in groups:
        failed = [record for record in group.records if record.state in FAILED]
        said += [
            f"{group.name}: job {one.id} ({one.name}) ended {one.state}: {one.reason or 'no reason known'}."
            for one in failed[:FAILED_NAMED_MAX]
        ]
        if len(failed) > FAILED_NAMED_MAX:
            said.append(
                f"{group.name}: {count(len(failed) - FAILED_NAMED_MAX, 'more job')} failed; see the jobs table."
            )
    return tuple(said)


LACKED: Final[Mapping[str, tuple[str, str, str]]] = {
    "length": ("takes those in order of arrival", "belief=profiled", "tells lengths, with noise"),
    "memory": ("lets none of those share a GPU", "memory_from=share", "takes that part of a GPU that each asks for"),
    "occupancy": ("lets none of those share a GPU", "world=factors", "takes what each asks of a GPU, else 0.52"),
    "sizes": ("gives those as many GPUs as they ask for", "", "the column `sizes` tells them"),
    "cores": ("takes those to need none", "", "the column `cores` tells them"),
    "owner": ("takes those for one user's", "", "the column `user` tells it"),
}
"""What a policy does with jobs of which it does not know what it is defined by, and which option stands in for that."""


def lacks_what(policy: str, lacks: Mapping[str, int], jobs: int, option: str) -> Iterator[str]:
    """That a policy does not know what it is defined by of so many of the jobs; `option` is how options are written."""
    for name, many in lacks.items():
        if many:
            does, stands_in, remedy = LACKED[name]
            which = "any job" if many == jobs else f"{many:,} of {count(f'{jobs:,}', 'job')}"
            key, _, value = stands_in.partition("=")
            by = option.format(option=key if "=" in option else key.replace("_", "-"), value=value) + " " if key else ""
            yield f"{policy} lacks what it is defined by: it knows no {name} of {which} and {does}; {by}{remedy}."
