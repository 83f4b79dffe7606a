"""How well slowdowns by co-runners are foreseen, on measured tables, beside simpler predictors.

    python benchmarks/predict.py --data DIR [--table FILE ...] [--splits 5] [--learnt 0.2] [--copies]

Tables: Gavel's one- and many-GPU pairs (A/gavel_v100_throughputs.json.gz; further files of that form by `--table`,
with all their GPU types) and the neighbours on sockets of the topology-aware scheduler
(C/prof_from_experiments.json). Of each, three questions: a part of the pairs is learnt and the others are judged
(*pairs*); a fifth of the jobs is hidden with all its pairs and these are judged (*jobs*); a fifth of the families is
(*families*). Step times alone are known; a job's demand is that of two copies of it beside each other (of the nearest
batch size where two do not fit; unknown where no two do). `--copies` counts pairs of copies too.

For each predictor: median and 95th percentile of the error of a job's slowdown, how often delta >= 1 (paper A, eq. 4.1)
and the sum of both speeds >= 1 is foreseen right, how often the 80 % interval holds the truth, all in percent, the mean
over the splits. Boosting needs scikit-learn, which Colane does not.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from colane.lab.simulate.factors import demand_of_copies
from colane.lab.traces.readers.topo import STEPS
from colane.lab.traces.tables import gavel, topology
from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.rate import Situation
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta, fit_line

COUNTS = (1, 2, 4, 8)
INTERVAL_Z = 1.2816
"""80 % of a normal distribution lie within so many standard deviations."""
SHARING, STEPS_SEEN = "mps", 10


def work_bound_speedup(step_s: Sequence[float], occupancy: Sequence[float]) -> float:
    """Best speed-up of a device that never does more than a second of work in one; C of each in percent x us of two."""
    return sum(step_s) / max(*step_s, sum(occupancy) / OCCUPANCY_UNITS_PER_S)


class Job(NamedTuple):
    """A kind of job: its step time alone, and the part of a GPU it needs."""

    family: str
    batch_size: int | None
    step_s: float
    demand: float | None


class Pair(NamedTuple):
    """Two jobs by their place in the table, and their slowdowns beside each other."""

    jobs: tuple[int, int]
    slowdowns: tuple[float, float]

    def sides(self) -> Iterator[tuple[int, int, float]]:
        """Which job is slowed, by which, how much."""
        yield *self.jobs, self.slowdowns[0]
        yield self.jobs[1], self.jobs[0], self.slowdowns[1]


class Table(NamedTuple):
    """What was measured."""

    name: str
    jobs: tuple[Job, ...]
    pairs: tuple[Pair, ...]

    def delta(self, pair: Pair, slowdowns: Sequence[float]) -> float:
        """Paper A, eq. 4.1."""
        alone = [self.jobs[job].step_s for job in pair.jobs]
        return delta(alone, [step_s * slowdown for step_s, slowdown in zip(alone, slowdowns, strict=True)])


class Answer(NamedTuple):
    """A slowdown foreseen, its standard error as a log (None: not said)."""

    slowdown: float
    sigma: float | None = None

    def holds(self, truth: float) -> bool:
        """Whether the 80 % interval holds the truth, within a millionth; one below 1, too, as it was measured."""
        return abs(log(truth / self.slowdown)) <= INTERVAL_Z * (self.sigma or 0.0) + 1e-6


Predictor = Callable[[int, int], Answer]
Fit = Callable[[Table, Sequence[Pair]], Predictor]


def demand(table: Table, job: int) -> float:
    """Of a job; unknown is all of a GPU."""
    known = table.jobs[job].demand
    return 1.0 if known is None else known


def by_line(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """One line for the speed-up of a set over its summed occupancy; each job as many times slower."""
    occupancy = [demand(table, k) * job.step_s * OCCUPANCY_UNITS_PER_S for k, job in enumerate(table.jobs)]
    points = [(sum(occupancy[k] for k in pair.jobs), 0.0, table.delta(pair, pair.slowdowns)) for pair in learnt]
    line = fit_line(points)
    return lambda me, other: Answer(_of_speedup(line.speedup(occupancy[me] + occupancy[other], 0.0)))


def by_bound(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """The speed-up of a set as of a device that does no more than a second of work in a second."""
    del learnt

    def answer(me: int, other: int) -> Answer:
        steps = [table.jobs[k].step_s for k in (me, other)]
        occupancy = [demand(table, k) * table.jobs[k].step_s * OCCUPANCY_UNITS_PER_S for k in (me, other)]
        return Answer(_of_speedup(work_bound_speedup(steps, occupancy)))

    return answer


def _of_speedup(speedup: float) -> float:
    return max(1.0, 2.0 / max(speedup, 0.1))


def by_demand(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """The same device, for each job: max(1, sum of demands)."""
    del learnt
    return lambda me, other: Answer(max(1.0, demand(table, me) + demand(table, other)))


def by_family(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """Mean of the family pair, else of the family, else of all."""
    seen: dict[tuple[str, ...], list[float]] = {}
    for pair in learnt:
        for me, other, slowdown in pair.sides():
            mine, theirs = table.jobs[me].family, table.jobs[other].family
            for group in ((mine, theirs), (mine,), ()):
                seen.setdefault(group, []).append(slowdown)

    def answer(me: int, other: int) -> Answer:
        mine, theirs = table.jobs[me].family, table.jobs[other].family
        found = seen.get((mine, theirs)) or seen.get((mine,)) or seen[()]
        return Answer(sum(found) / len(found))

    return answer


def by_effects(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """Log slowdown = mean + effect of the slowed + effect of the slowing job, by ridge regression."""
    count = len(table.jobs)
    sides = [side for pair in learnt for side in pair.sides()]
    design = np.zeros((len(sides), 2 * count))
    for row, (me, other, _) in enumerate(sides):
        design[row, me] = design[row, count + other] = 1.0
    logs = np.array([log(slowdown) for _, _, slowdown in sides])
    mean = float(logs.mean())
    effects = np.linalg.solve(design.T @ design + np.eye(2 * count), design.T @ (logs - mean))
    return lambda me, other: Answer(max(1.0, exp(mean + float(effects[me] + effects[count + other]))))


def by_boosting(table: Table, learnt: Sequence[Pair], *, with_effects: bool = False) -> Predictor:
    """Gradient boosting of log slowdown over step time, demand and batch size of both."""
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415 - where it is installed

    effects = by_effects(table, learnt) if with_effects else None

    def row(me: int, other: int) -> list[float]:
        own = [
            value
            for k in (me, other)
            for value in (log(table.jobs[k].step_s), demand(table, k), log(table.jobs[k].batch_size or 1))
        ]
        more = [] if effects is None else [log(effects(me, other).slowdown)]
        return [*own, by_demand(table, ())(me, other).slowdown, *more]

    sides = [side for pair in learnt for side in pair.sides()]
    model = GradientBoostingRegressor(n_estimators=300, learning_rate=0.05, subsample=0.7, random_state=0)
    model.fit([row(me, other) for me, other, _ in sides], [log(slowdown) for _, _, slowdown in sides])
    count = range(len(table.jobs))
    found = np.exp(model.predict([row(me, other) for me in count for other in count]))
    return lambda me, other: Answer(max(1.0, float(found[me * len(count) + other])))


def by_boosting_and_effects(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """The same, with the effects."""
    return by_boosting(table, learnt, with_effects=True)


def by_colane(table: Table, learnt: Sequence[Pair]) -> Predictor:
    """What Colane believes, having measured these pairs once each."""
    keys = [ProfileKey(job.family, job.batch_size, 1, table.name) for job in table.jobs]
    beliefs = Beliefs(profiles=map(_profile, keys, table.jobs))
    for pair in learnt:
        alone_s = [table.jobs[job].step_s for job in pair.jobs]
        together_s = [step_s * slowdown for step_s, slowdown in zip(alone_s, pair.slowdowns, strict=True)]
        found = delta(alone_s, together_s)
        beliefs.learn_set(
            SetMeasurement(
                keys=tuple([keys[job] for job in pair.jobs]),
                sharing=SHARING,
                step_alone_s=tuple(alone_s),
                step_together_s=tuple(together_s),
                steps=(STEPS_SEEN,) * len(alone_s),
                delta=found,
                delta_general=found,
                at_s=0.0,
            )
        )

    def answer(me: int, other: int) -> Answer:
        spec = JobSpec(name="", family=table.jobs[me].family, batch_size=table.jobs[me].batch_size)
        rate = beliefs.rate(spec, Situation(table.name, sharing=SHARING, beside=(keys[other],)))
        return Answer(rate.slowdown, rate.spread_ratio)

    return answer


def _profile(key: ProfileKey, job: Job) -> Profile:
    busy = None if job.demand is None else job.demand * job.step_s * OCCUPANCY_UNITS_PER_S
    return Profile(
        key=key,
        step_s=Value(job.step_s, ValueSource.MEASURED, STEPS_SEEN),
        occupancy=None if busy is None else Value(busy, ValueSource.MEASURED, STEPS_SEEN),
    )


PREDICTORS: Mapping[str, Fit] = {
    "line over C": by_line,
    "bound by work, of the set": by_bound,
    "max(1, u1 + u2) per job": by_demand,
    "family pair, else family": by_family,
    "row and column effects": by_effects,
    "boosting over features": by_boosting,
    "boosting and effects": by_boosting_and_effects,
    "Colane": by_colane,
}


def gavel_tables(path: Path, *, copies: bool) -> Iterator[Table]:
    """Every GPU type and number of GPUs of a file, GPUs on one server and on several."""
    read = gavel.read_json(path)
    spots = {spot for spot, _ in read.alone_steps_per_s}
    for spot in sorted(spots):
        for gpus in COUNTS:
            name = f"{path.name.split('.')[0]} {spot.gpu_type}{'' if spot.consolidated else ' apart'} x{gpus}"
            table = _gavel_table(name, read, spot, gpus, copies=copies)
            if table.pairs and (spot.consolidated or gpus > 1):
                yield table


def _gavel_table(name: str, read: gavel.GavelTable, spot: gavel.Spot, gpus: int, *, copies: bool) -> Table:
    at = spot.consolidated
    speeds = {job: read.alone(spot.gpu_type, job, consolidated=at) for job in read.jobs(gpus)}
    asked = [job for job, speed in speeds.items() if speed]
    demands: dict[gavel.GavelJob, float] = {}
    for job in asked:
        both = read.together(spot.gpu_type, job, job, consolidated=at)
        if both and both[0]:
            demands[job] = demand_of_copies(both[0] / (speeds[job] or 1.0))
    jobs = tuple(Job(job.model, job.batch_size, 1 / (speeds[job] or 1.0), _nearest(demands, job)) for job in asked)
    pairs = []
    for first, one in enumerate(asked):
        for second in range(first if copies else first + 1, len(asked)):
            both = read.together(spot.gpu_type, one, asked[second], consolidated=at)
            if both and all(both):
                slowed = [max(1.0, 1 / (v * jobs[k].step_s)) for v, k in zip(both, (first, second), strict=True)]
                pairs.append(Pair((first, second), (slowed[0], slowed[1])))
    return Table(name, jobs, tuple(pairs))


def _nearest(demands: Mapping[gavel.GavelJob, float], job: gavel.GavelJob) -> float | None:
    gpu_group = [
        (abs((one.batch_size or 0) - (job.batch_size or 0)), known)
        for one, known in demands.items()
        if one.model == job.model
    ]
    return min(gpu_group)[1] if gpu_group else None


def topology_table(path: Path, *, copies: bool) -> Table:
    """Jobs on other GPUs of one machine; time alone is that across its sockets, where collocated ones ran."""
    read = topology.read(path)
    asked = sorted({job for pair in read.collocated_s for job in pair})
    solo = [read.solo(job, one_socket=False) or read.solo(job) for job in asked]
    jobs = tuple(
        Job(f"{job.model} x{job.gpus}", job.batch_size, s / STEPS, None)
        for job, s in zip(asked, solo, strict=True)
        if s
    )
    known = [job for job, s in zip(asked, solo, strict=True) if s]
    pairs = []
    for first, one in enumerate(known):
        for second in range(first if copies else first + 1, len(known)):
            both = read.next_to(one, known[second]), read.next_to(known[second], one)
            if both[0] and both[1]:
                steps = [s / STEPS for s in both if s]
                slowed = [max(1.0, s / jobs[k].step_s) for s, k in zip(steps, (first, second), strict=True)]
                pairs.append(Pair((first, second), (slowed[0], slowed[1])))
    return Table("topology-aware, neighbours", jobs, tuple(pairs))


def judge(table: Table, predict: Predictor, pairs: Sequence[Pair]) -> list[float]:
    """Median and p95 error, decisions right by delta and by sum, coverage; percent."""
    errors, by_delta, by_sum, held = [], [], [], []
    for pair in pairs:
        found = [predict(me, other) for me, other, _ in pair.sides()]
        foreseen = [answer.slowdown for answer in found]
        by_delta.append((table.delta(pair, foreseen) >= 1) == (table.delta(pair, pair.slowdowns) >= 1))
        by_sum.append((sum(1 / s for s in foreseen) >= 1) == (sum(1 / s for s in pair.slowdowns) >= 1))
        errors += [abs(s - truth) / truth for s, truth in zip(foreseen, pair.slowdowns, strict=True)]
        held += [a.holds(truth) for a, truth in zip(found, pair.slowdowns, strict=True) if a.sigma is not None]
    rights = np.mean(by_delta), np.mean(by_sum), np.mean(held) if held else np.nan
    return [100 * float(each) for each in (*np.percentile(errors, [50, 95]), *rights)]


def split_pairs(table: Table, seed: int, learnt: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs to learn from, and all others."""
    order = Random(seed).sample(table.pairs, len(table.pairs))  # noqa: S311 - no secret
    count = max(1, round(learnt * len(order)))
    return order[:count], order[count:]


def split_jobs(table: Table, seed: int, learnt: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs of four fifths of the jobs, and those that any other has a part in."""
    del learnt
    hidden = set(Random(seed).sample(range(len(table.jobs)), max(1, len(table.jobs) // 5)))  # noqa: S311 - as above
    known = [pair for pair in table.pairs if hidden.isdisjoint(pair.jobs)]
    return known, [pair for pair in table.pairs if not hidden.isdisjoint(pair.jobs)]


def split_families(table: Table, seed: int, learnt: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs of four fifths of the families, and those that any other has a part in."""
    del learnt
    families = sorted({job.family for job in table.jobs})
    hidden = set(Random(seed).sample(families, max(1, len(families) // 5)))  # noqa: S311 - as above
    known = [pair for pair in table.pairs if hidden.isdisjoint(table.jobs[job].family for job in pair.jobs)]
    return known, [pair for pair in table.pairs if not hidden.isdisjoint(table.jobs[job].family for job in pair.jobs)]


def show(table: Table, splits: int, learnt: float) -> None:
    """Print a row for each predictor."""
    names = ("median", "p95", "delta>=1", "sum>=1", "in 80 %")
    print(f"\n{table.name}: {len(table.jobs)} jobs, {len(table.pairs)} pairs")
    print(
        f"{'':26}{'pairs: ':<8}"
        + "".join(f"{n:>9}" for n in names)
        + f"  {'jobs: ':<6}"
        + "".join(f"{n:>9}" for n in names)
        + f"  {'families: ':<10}"
        + "".join(f"{n:>9}" for n in names)
    )
    for name, fit in PREDICTORS.items():
        if "boosting" in name and importlib.util.find_spec("sklearn") is None:
            continue
        columns = []
        for split in (split_pairs, split_jobs, split_families):
            parts = [split(table, seed, learnt) for seed in range(splits)]
            rows = [judge(table, fit(table, known), judged) for known, judged in parts if known and judged]
            columns.append("".join(f"{value:9.1f}" for value in np.mean(rows, axis=0)))
        print(f"{name:26}{'':8}{columns[0]}  {'':6}{columns[1]}  {'':10}{columns[2]}")


def main() -> None:
    """Judge every table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--table", type=Path, action="append", default=[])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--learnt", type=float, default=0.2)
    parser.add_argument("--copies", action="store_true")
    options = parser.parse_args()
    for path in (options.data / "A/gavel_v100_throughputs.json.gz", *options.table):
        for table in gavel_tables(path, copies=options.copies):
            show(table, options.splits, options.learnt)
    neighbours = topology_table(options.data / "C/prof_from_experiments.json", copies=options.copies)
    show(neighbours, options.splits, options.learnt)


if __name__ == "__main__":
    main()
