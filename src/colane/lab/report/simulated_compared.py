"""What simulated policies achieved against each other: on one workload as it is, over seeds only what is no chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

import numpy as np

from colane.lab.report.metrics import Summary, percent_change
from colane.lab.report.prose import NEGLIGIBLE_PERCENT, TENFOLD_PERCENT, duration, lacks_what, percent, spoken
from colane.lab.report.simulated import Interval, SimulatedMetrics, SimulatedRun, Study, confidence
from colane.model.words import count

SEEDS_MIN = 3  # with fewer no interval is given: of two seeds it is 12.7 standard errors wide, and says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One metric of a policy against that of the baseline, over the seeds for which both have it."""

    seeds: int  # how many
    base_mean: float  # the baseline's mean over these seeds
    other_mean: float  # the policy's
    difference_mean: float  # mean of (policy - baseline) over seeds
    # half of the 95 % interval of it (Student's t over seeds); None with fewer than `SEEDS_MIN`
    half_width: float | None

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.half_width is not None and abs(self.difference_mean) > self.half_width

    @property
    def change_percent(self) -> float | None:
        """Mean difference in percent of the baseline's mean; None where that is 0."""
        return percent_change(self.base_mean, self.other_mean)

    @property
    def judged(self) -> dict[str, Any]:
        """The change, and whether it is no chance, for programs."""
        significant = None if self.half_width is None else self.is_significant
        return {"change_percent": self.change_percent, "significant": significant}


def paired(base: Mapping[int, float | None], other: Mapping[int, float | None]) -> Paired | None:
    """Compare two policies by seed; None where no seed has a value of both."""
    pairs = [(value, other.get(seed)) for seed, value in sorted(base.items())]
    known = [(a, b) for a, b in pairs if a is not None and b is not None and isfinite(a) and isfinite(b)]
    interval = confidence([b - a for a, b in known])
    if interval is None:
        return None
    return Paired(
        seeds=len(known),
        base_mean=sum(a for a, _ in known) / len(known),
        other_mean=sum(b for _, b in known) / len(known),
        difference_mean=interval.mean,
        half_width=interval.half_width if len(known) >= SEEDS_MIN else None,
    )


class EndCounts(NamedTuple):
    """What became of the jobs of a run: how many succeeded, and how many never ended."""

    finished: int
    unfinished: int
    jobs: int


def of_other_jobs(base: Mapping[int, EndCounts], other: Mapping[int, EndCounts]) -> tuple[EndCounts, EndCounts] | None:
    """Both ends of the first seed in which two policies did not finish the same jobs; their means tell nothing then."""
    for seed, one in base.items():
        two = other.get(seed, one)
        if one.finished != two.finished or one.unfinished or two.unfinished:
            return one, two
    return None


def nothing_claimed(base: str, other: str, ends: tuple[EndCounts, EndCounts], where: str = "") -> str:
    """Why nothing is said of a policy against another."""
    one, two = ends
    lost = " and ".join(
        f"{spoken(name)} finished {found.finished:,} of {count(f'{found.jobs:,}', 'job')}"
        + (f" ({found.unfinished:,} never ended)" if found.unfinished else "")
        for name, found in ((other, two), (base, one))
    )
    said = f"Nothing is claimed of {spoken(other)} against {spoken(base)}{where}"
    return f"{said}: {lost}, so means are not of the same jobs."


PARTS = frozenset({"gpu_active_ratio", "gpu_utilization_ratio", "fragmentation_ratio"})
"""Metrics that are a part of the cluster."""


def shown(metric: str, value: float | None) -> str:
    """A value of a metric for people: times in the unit that suits them, parts of the cluster in percent."""
    return f"{100 * value:.3g} %" if value is not None and metric in PARTS else _shown(metric, value)


def difference_shown(metric: str, value: float | None) -> str:
    """A difference of two values of a metric, or half of its interval: of parts in points of percent."""
    return f"{100 * value:.3g} points" if value is not None and metric in PARTS else _shown(metric, value)


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    if metric.endswith("_s"):
        return f"-{duration(-value)}" if value < 0 else duration(value)
    return f"{value:.3g}"


class ComparedMetric(NamedTuple):
    """The field of a run's metrics that it comes from, what it is called in a sentence, and its title."""

    field: str
    called: str
    title: str


COMPARED: Final[Mapping[str, ComparedMetric]] = {
    "makespan_s": ComparedMetric("makespan_s", "makespan", "All jobs"),
    "mean_jct_s": ComparedMetric("jct_s", "mean JCT", "Took, mean"),
    "p95_jct_s": ComparedMetric("jct_s", "p95 of JCT", "Took, p95"),
    "mean_queueing_s": ComparedMetric("queue_s", "mean time in the queue", "Waited, mean"),
    "gpu_active_ratio": ComparedMetric("gpu_active_ratio", "part of the GPUs with a job", "GPUs with a job"),
    "gpu_utilization_ratio": ComparedMetric(
        "gpu_utilization_ratio", "part of the GPUs' worth that is used", "GPUs' use"
    ),
}


class PolicyDifference(NamedTuple):
    """One metric of a policy against the first policy's, seed by seed."""

    policy: str
    metric: str
    found: Paired


def interval(study: Study, policy: str, name: str) -> Interval | None:
    """Mean of a metric over seeds, with its interval."""
    return confidence([_metric(found, name) for _, found in study.of(policy)])


def _metric(found: SimulatedMetrics, name: str) -> float | None:
    value = getattr(found, COMPARED[name].field)
    if isinstance(value, Summary):
        return value.p95 if name.startswith("p95") else value.mean
    return None if value is None else float(value)


def is_over_seeds(study: Study) -> bool:
    """Whether there are several seeds, and not all alike: alike ones are one workload, and what it gave is a fact."""
    if len(study.seeds) < 2:
        return False
    return any(len({_metric(found, name) for _, found in study.of(p)}) > 1 for p in study.policies for name in COMPARED)


def differences(study: Study) -> list[PolicyDifference]:
    """Each policy against the first one, seed by seed; none where there is one workload."""
    if not is_over_seeds(study):
        return []
    base, *others = study.policies
    made, silent = [], unclaimed(study)
    for policy in (other for other in others if other not in silent):
        for name in COMPARED:
            one, two = ({run.seed: _metric(m, name) for run, m in study.of(of)} for of in (base, policy))
            found = paired(one, two)
            made += [] if found is None else [PolicyDifference(policy, name, found)]
    return made


def difference_object(study: Study, one: PolicyDifference) -> dict[str, Any]:
    """For programs."""
    found = one.found
    return {
        "policy": one.policy,
        "baseline": study.policies[0],
        "metric": one.metric,
        "seeds": found.seeds,
        "mean": found.difference_mean,
        "ci95": found.half_width,
        **found.judged,
    }


def sentences(study: Study) -> tuple[str, ...]:
    """What came out: every policy against the first, or the only one by itself."""
    if not study.runs:
        return ("Nothing was simulated.",)
    base, *others = study.policies
    silent = unclaimed(study)
    first = (*silent.values(), *_lacking(study))
    told = [other for other in others if other not in silent]
    if not is_over_seeds(study):
        return (*first, *(_against(study, base, other) for other in told), _alone(study, base))
    found = differences(study)
    return (*first, *(_over_seeds(study, other, found) for other in told), _mean_alone(study, base))


def unclaimed(study: Study) -> dict[str, str]:
    """Why nothing is claimed, by policy that did not finish the same jobs as the first one."""
    base, *others = study.policies or ("",)
    ends = {
        policy: {run.seed: EndCounts(m.finished, m.unfinished, m.jobs) for run, m in study.of(policy)}
        for policy in study.policies
    }
    found = {other: of_other_jobs(ends[base], ends[other]) for other in others}
    return {other: nothing_claimed(base, other, uneven) for other, uneven in found.items() if uneven}


def is_idle(run: SimulatedRun) -> bool:
    """Whether a policy got nothing done: there are jobs, and none was started."""
    return run.jobs > 0 and not np.isfinite(run.columns.first_start_s).any()


def _lacking(study: Study) -> Iterator[str]:
    """Policies that got nothing done, or lack what defines them: what they gain is then not theirs; said first."""
    for policy, run in study.first().items():
        if is_idle(run):
            plans = count(f"{len(run.flaws):,}", "plan")
            why = f": its {plans} could not be carried out, the first at {run.flaws[0]}" if run.flaws else ""
            yield f"{spoken(policy)} started no job{why}."
        yield from lacks_what(policy, run.lacks, run.jobs, "--{option} {value}")


def _over_seeds(study: Study, policy: str, found: list[PolicyDifference]) -> str:
    """What seeds agree on."""
    said = f"{spoken(policy)} against {spoken(study.policies[0])}"
    seeds = len(study.seeds)
    if seeds < SEEDS_MIN:
        return f"{said}: {seeds} seeds tell no difference from chance; that takes {SEEDS_MIN}."
    parts = [_part(one) for one in found if one.policy == policy and one.found.is_significant]
    told = "; ".join(parts) or "no difference is significant at 95 %"
    return f"{said}, paired over {count(seeds, 'seed')}: {told}."


def _part(one: PolicyDifference) -> str:
    found = one.found
    less = "lower" if found.difference_mean < 0 else "higher"
    change = "" if found.change_percent is None else f", {abs(found.change_percent):.3g} %"
    size, width = (difference_shown(one.metric, value) for value in (abs(found.difference_mean), found.half_width))
    return f"{COMPARED[one.metric].called} {size} {less} (+- {width}{change})"


def _mean_alone(study: Study, policy: str) -> str:
    """Of all seeds, never of one beside means of all."""
    runs = [found for _, found in study.of(policy)]
    jobs, finished = sum(found.jobs for found in runs), sum(found.finished for found in runs)
    said = f"{spoken(policy)} finished {finished:,} of {count(f'{jobs:,}', 'job')} of {count(len(runs), 'seed')}"
    span, jct, queue = (interval(study, policy, name) for name in ("makespan_s", "mean_jct_s", "mean_queueing_s"))
    said += "" if span is None else f", those of a seed in {_told(span)} on average"
    if jct and queue:
        said += f"; a job took {_told(jct)} on average, of which it waited {_told(queue)}"
    return said + "."


def _told(found: Interval) -> str:
    return duration(found.mean) + ("" if found.half_width is None else f" +- {duration(found.half_width)}")


def _alone(study: Study, policy: str) -> str:
    runs = study.of(policy)
    run, found = runs[0]
    of = "" if len(runs) == 1 else f" (seed {run.seed} of {len(runs)})"
    said = f"{spoken(policy)} finished {found.finished:,} of {count(f'{found.jobs:,}', 'job')}"
    said += of if found.makespan_s is None else f" in {duration(found.makespan_s)}{of}"
    if found.jct_s and found.queue_s:
        said += (
            f"; a job took {duration(found.jct_s.mean)} on average, of which it waited {duration(found.queue_s.mean)}"
        )
        if found.wait_s and _is_other(found.wait_s.mean, found.queue_s.mean):
            said += f" to its first start and {duration(found.wait_s.mean)} in all"
    return said + "."


def _is_other(waited_s: float, queued_s: float) -> bool:
    """Whether a job waits not only to its first start: it is stopped, or takes turns."""
    return abs(waited_s - queued_s) > queued_s * NEGLIGIBLE_PERCENT / 100


def _waits(study: Study, base: str, other: str) -> str:
    """How a job waits in all, where that is not what it waits to its first start."""
    means = []
    for policy in (base, other):
        found = [(one.queue_s, one.wait_s) for _, one in study.of(policy)]
        known = [(queue.mean, wait.mean) for queue, wait in found if queue and wait]
        if len(known) < len(found):
            return ""
        means.append([sum(column) / len(known) for column in zip(*known, strict=True)])
    change = percent_change(means[0][1], means[1][1])
    if change is None or not any(_is_other(waited_s, queued_s) for queued_s, waited_s in means):
        return ""
    return f" to its first start, {_less_or_more(change)} in all"


def _against(study: Study, base: str, other: str) -> str:
    means = {name: (interval(study, base, name), interval(study, other, name)) for name in COMPARED}
    changes = {name: percent_change(a.mean if a else None, b.mean if b else None) for name, (a, b) in means.items()}
    said = f"{spoken(other)} against {spoken(base)}: all jobs are done {_earlier(changes['makespan_s'])}"
    known = (("takes", changes["mean_jct_s"]), ("waits", changes["mean_queueing_s"]))
    does = " and ".join(f"{verb} {_less_or_more(change)}" for verb, change in known if change is not None)
    does += _waits(study, base, other) if changes["mean_queueing_s"] is not None else ""
    said += f"; a job {does} on average" if does else ""
    both = [found.mean for found in means["gpu_utilization_ratio"] if found is not None]
    return said + (
        f"; {100 * both[1]:.0f} % of the GPUs' worth is used instead of {100 * both[0]:.0f} %."
        if len(both) == 2
        else "."
    )


def _earlier(change: float | None) -> str:
    if change is None or abs(change) < NEGLIGIBLE_PERCENT:
        return "in the same time"
    return f"in {_less_or_more(change)} time"


def _less_or_more(change: float) -> str:
    if abs(change) < NEGLIGIBLE_PERCENT:
        return "as long"
    return percent(change) if change >= TENFOLD_PERCENT else f"{abs(change):.0f} % {'less' if change < 0 else 'more'}"
