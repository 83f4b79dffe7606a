"""How right rates are of jobs that share a GPU, by where they come from: on Gavel's measured V100 pairs.

    python benchmarks/rates.py --data DIR [--splits 5] [--learnt 0.2]

Step times alone are believed as measured, C is each job's demand from two copies of it beside each other. A part of
the pairs is learnt as sets; the rates of the jobs of all others are judged: by the bound by work (nothing learnt, plain
time slicing), by the threshold (nothing learnt, MPS), by the regression (MPS), by default (nothing known). For each:
median and 95th percentile of the error of a job's slowdown, how often delta >= 1 and the sum of both speeds >= 1 is
foreseen right, how often a slowdown lies within one spread of that foreseen, and the spread in which 68 % do (it is
`PerfConfig.spreads`). All in percent. At the end, how long an answer takes: first, and again. DIR holds
A/gavel_v100_throughputs.json.gz.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import NamedTuple

import numpy as np

from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.perf.rate import Rate
from colane.perf.situation import Situation
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta
from colane.perf.views import speedup, summed_speed
from colane.simulate.factors import demand_of_copies
from colane.traces.tables import gavel

REPETITIONS = 20
TYPE = "Tesla V100-SXM2-16GB"


class Pair(NamedTuple):
    """Two jobs, their step times alone and beside each other."""

    keys: tuple[ProfileKey, ProfileKey]
    alone_s: tuple[float, float]
    together_s: tuple[float, float]

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Time together over time alone."""
        return tuple(max(1.0, t / a) for a, t in zip(self.alone_s, self.together_s, strict=True))

    def learnt(self, sharing: str) -> SetMeasurement:
        """As a set that was measured."""
        found = delta(self.alone_s, self.together_s)
        return SetMeasurement(
            keys=self.keys, sharing=sharing, step_alone_s=self.alone_s, step_together_s=self.together_s, steps=(10, 10),
            delta=found, delta_general=found, at_s=0.0,
        )  # fmt: skip


def known(table: gavel.GavelTable) -> list[Profile]:
    """Every one-GPU job of which two copies fit."""
    found = []
    for job in table.jobs(1):
        speed, copies = table.alone("v100", job), table.together("v100", job, job)
        if speed and copies and copies[0]:
            occupancy = demand_of_copies(copies[0] / speed) / speed * OCCUPANCY_UNITS_PER_S
            values = Value(1 / speed, ValueSource.MEASURED, 10), Value(occupancy, ValueSource.MEASURED, 10)
            key = ProfileKey(job.model, job.batch_size, 1, TYPE)
            found.append(Profile(key=key, step_s=values[0], occupancy=values[1]))
    return found


def measured_pairs(table: gavel.GavelTable, profiles: Iterable[Profile]) -> list[Pair]:
    """All pairs of two kinds that were measured; copies have told C."""
    jobs = [gavel.GavelJob(p.key.family, p.key.batch_size, 1) for p in profiles]
    found = []
    for place, one in enumerate(jobs):
        for other in jobs[place + 1 :]:
            speeds = table.together("v100", one, other)
            alone = [table.alone("v100", job) or 0.0 for job in (one, other)]
            if speeds and all(speeds) and all(alone):
                keys = (ProfileKey(*one, TYPE), ProfileKey(*other, TYPE))
                found.append(Pair(keys, (1 / alone[0], 1 / alone[1]), (1 / speeds[0], 1 / speeds[1])))
    return found


def rates(beliefs: Beliefs, pair: Pair, sharing: str) -> list[Rate]:
    """Of both jobs."""
    asked = [(pair.keys[0], pair.keys[1]), (pair.keys[1], pair.keys[0])]
    specs = [JobSpec(name=key.family, family=key.family, batch_size=key.batch_size) for key, _ in asked]
    situations = [Situation(TYPE, sharing=sharing, beside=(other,)) for _, other in asked]
    return [beliefs.rate(spec, situation) for spec, situation in zip(specs, situations, strict=True)]


def judge(beliefs: Beliefs, pairs: Sequence[Pair], sharing: str) -> list[float]:
    """Median and p95 error, decisions right by delta and by sum, truths within a spread, the right spread; percent."""
    errors, by_delta, by_sum, within, off = [], [], [], [], []
    for pair in pairs:
        found = rates(beliefs, pair, sharing)
        true_sum = sum(1 / slowdown for slowdown in pair.slowdowns)
        by_delta.append(((speedup(found[0]) or 0.0) >= 1) == (delta(pair.alone_s, pair.together_s) >= 1))
        by_sum.append((summed_speed(found) >= 1) == (true_sum >= 1))
        for rate, slowdown in zip(found, pair.slowdowns, strict=True):
            errors.append(abs(rate.slowdown - slowdown) / slowdown)
            off.append(abs(rate.slowdown - slowdown) / rate.slowdown)
            within.append(off[-1] <= rate.spread_ratio)
    rights = [np.mean(by_delta), np.mean(by_sum), np.mean(within)]
    return [100 * float(each) for each in (*np.percentile(errors, [50, 95]), *rights, np.percentile(off, 68))]


def time_us(profiles: Sequence[Profile], pairs: Sequence[Pair]) -> tuple[float, float]:
    """Microseconds of an answer that is worked out, and of one that is remembered."""
    beliefs = Beliefs(PerfConfig(), profiles)
    asked = [
        (JobSpec(name="", family=one.family, batch_size=one.batch_size), Situation(TYPE, beside=(other,)))
        for one, other in (pair.keys for pair in pairs)
    ]
    taken = []
    for _ in range(2):
        begin = perf_counter()
        for spec, situation in asked:
            beliefs.rate(spec, situation)
        taken.append((perf_counter() - begin) / len(asked) * 1e6)
    return taken[0], taken[1]


def main() -> None:
    """Print a row for each source."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--learnt", type=float, default=0.2)
    options = parser.parse_args()
    table = gavel.read_json(options.data / "A/gavel_v100_throughputs.json.gz")
    profiles = known(table)
    pairs = measured_pairs(table, profiles)
    print(f"{len(profiles)} kinds of jobs, {len(pairs)} pairs, {options.splits} splits, {options.learnt:.0%} learnt")
    print(
        f"{'source':12}"
        + "".join(f"{name:>10}" for name in ("median", "p95", "delta>=1", "sum>=1", "in spread", "spread"))
    )
    rows: dict[str, list[list[float]]] = {"work-bound": [], "threshold": [], "regression": [], "default": []}
    for seed in range(options.splits):
        order = Random(seed).sample(pairs, len(pairs))  # noqa: S311 - no secret
        count = round(options.learnt * len(pairs))
        learnt, left = order[:count], order[count:]
        fitted = Beliefs(PerfConfig(), profiles, [pair.learnt("mps") for pair in learnt])
        rows["work-bound"].append(judge(Beliefs(PerfConfig(), profiles), left, "time-slice"))
        rows["threshold"].append(judge(Beliefs(PerfConfig(), profiles), left, "mps"))
        rows["regression"].append(judge(fitted, left, "mps"))
        rows["default"].append(judge(Beliefs(), left, "mps"))
    for name, found in rows.items():
        print(f"{name:12}" + "".join(f"{value:10.1f}" for value in np.mean(found, axis=0)))
    first, again = np.min([time_us(profiles, pairs) for _ in range(REPETITIONS)], axis=0)
    print(f"an answer takes {first:.1f} us, asked again {again:.2f} us")


if __name__ == "__main__":
    main()
