"""What a study says: each policy against the baseline at each load, and a sentence only where seeds agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from colane.lab.report.paired import SEEDS_MIN, Paired, difference_shown, paired
from colane.lab.report.prose import lacks_lengths, spoken
from colane.lab.report.windowed import METRICS, Value
from colane.lab.studies.file import CellKey, StudyPlan
from colane.model.words import count

Cells = Mapping[CellKey, Mapping[str, Value]]
"""Metrics by simulation."""

LEVEL_OF_CHANCE: Final = 20
"""Of so many comparisons at 95 % where there is no difference, one comes out as one."""


class Compared(NamedTuple):
    """One metric of a policy at a load against the baseline's."""

    policy: str
    load: float
    metric: str
    found: Paired


def compare(plan: StudyPlan, cells: Cells) -> list[Compared]:
    """Compare all policies with the baseline, seed by seed; what no seed has of both is left out."""
    made = []
    for load in plan.loads:
        for policy in plan.policies:
            for metric in plan.metrics if policy != plan.baseline else ():
                found = paired(
                    _by_seed(plan, cells, plan.baseline, load, metric), _by_seed(plan, cells, policy, load, metric)
                )
                if found is not None:
                    made.append(Compared(policy, load, metric, found))
    return made


def _by_seed(plan: StudyPlan, cells: Cells, policy: str, load: float, metric: str) -> dict[int, float | None]:
    keys = {seed: CellKey(policy, load, seed) for seed in plan.seeds}
    return {seed: cells[key][metric] for seed, key in keys.items() if key in cells}


def lacking(plan: StudyPlan, cells: Cells) -> Iterator[str]:
    """Policies that go by lengths and knew too few: what they gain is not theirs, and that is said first."""
    for policy in plan.policies:
        mine = [found for key, found in cells.items() if key.policy == policy]
        lengthless, jobs = (sum(int(found[name] or 0) for found in mine) for name in ("lengthless", "workload_jobs"))
        if lengthless:
            yield lacks_lengths(policy, lengthless, jobs, 'belief = "profiled"')


def sentences(plan: StudyPlan, compared: Sequence[Compared]) -> tuple[str, ...]:
    """One for each significant difference."""
    return tuple(_sentence(plan, one) for one in compared if one.found.is_significant)


def _sentence(plan: StudyPlan, one: Compared) -> str:
    found = one.found
    where = f"at load {one.load:g}, " if len(plan.loads) > 1 else ""
    less = "lower" if found.difference_mean < 0 else "higher"
    size, width = (difference_shown(one.metric, value) for value in (abs(found.difference_mean), found.half_width))
    change = "" if found.change_percent is None else f", {abs(found.change_percent):.3g} %"
    said = f"{spoken(one.policy)} against {spoken(plan.baseline)}: {where}{METRICS[one.metric]} is {size} {less}"
    return f"{said} (+- {width}{change}; {count(found.seeds, 'seed')})."


def notes(plan: StudyPlan, cells: Cells, compared: Sequence[Compared]) -> Iterator[str]:
    """What a reader must know of the comparisons."""
    missing = [key for key in plan.cells if key not in cells]
    if missing:
        yield f"Not simulated yet: {len(missing)} of {count(len(plan.cells), 'cell')}, the first is {missing[0]}."
    if len(plan.policies) > 1 and len(plan.seeds) < SEEDS_MIN:
        yield f"No interval is given and nothing is claimed: that takes {SEEDS_MIN} seeds, here {_have(plan)}."
    judged = [one for one in compared if one.found.half_width is not None]
    if judged:
        significant = sum(one.found.is_significant for one in judged)
        chance = len(judged) / LEVEL_OF_CHANCE
        yield (
            f"{significant} of {count(len(judged), 'difference')} significant at 95 % each (Student's t, paired by "
            f"seed); were there none, about {chance:.2g} would come out by chance."
        )
    if any(cells[key]["unfinished"] for key in cells):
        yield "Some jobs never ended in some simulations (unfinished in cells.csv): means are of those that did."
    counts = {(key.load, key.seed): set[Value]() for key in cells}
    for key, found in cells.items():
        counts[key.load, key.seed].add(found["finished"])
    if any(len(several) > 1 for several in counts.values()):
        yield "Policies finished different numbers of jobs, so their means are not of the same jobs."


def _have(plan: StudyPlan) -> str:
    return "is 1" if len(plan.seeds) == 1 else f"are {len(plan.seeds)}"


def as_object(one: Compared, plan: StudyPlan) -> dict[str, Any]:
    """For programs and tables."""
    found = one.found
    return {
        "policy": one.policy,
        "baseline": plan.baseline,
        "load": one.load,
        "metric": one.metric,
        "seeds": found.seeds,
        "baseline_mean": found.base_mean,
        "policy_mean": found.other_mean,
        "difference_mean": found.difference_mean,
        "difference_ci95": found.half_width,
        "change_percent": found.change_percent,
        "significant": None if found.half_width is None else found.is_significant,
    }
