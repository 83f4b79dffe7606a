"""How well slowdowns are foreseen live: random sets of the built-in jobs on a cpu device, foreseen, then seen.

    python benchmarks/predict_live.py [--sets 30] [--seed 0] [--window-s 4] [--largest 3]

Each kind of job runs alone first: its step time and the part of the cores it keeps busy are what is known of it. Then
sets of two to three kinds are drawn, and of each is foreseen how much slower every job will be, from what the sets
before it have taught; then the set runs as real processes with one thread each, and teaches what it showed. Printed are
both, and over all jobs the median and 95th percentile of the error, how often the sum of speeds >= 1 was foreseen
right, and how often the 80 % interval held the truth. Nothing else may run: a window in which others used the cores is
measured again, a few times.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.delta_cpu import (
    Job,
    Setting,
    look,
    measure,
    medium,
    running,
    settled,
    small,
    used_s,
    warm_up,
)
from benchmarks.predict import Answer

from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.rate import Situation
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta

KINDS = (*small("vgg11", "vgg19", "resnet18"), *medium("vgg11", "vgg19", "resnet18"))
SETTING = Setting(1)
DEVICE, SHARING, STEPS_SEEN = "cpu", "cpu", 10


class Alone(NamedTuple):
    """A job alone: its step time, and the part of the device's cores it keeps busy."""

    step_s: float
    busy_ratio: float


class Verdict(NamedTuple):
    """A job of one set."""

    foreseen: Answer
    seen: float


def key_of(job: Job) -> ProfileKey:
    """Its kind: the same model of another width is another script's."""
    return ProfileKey(f"{job.model} {job.width}", job.batch, 1, DEVICE)


def alone(job: Job, window_s: float) -> Alone:
    """Run a job alone.

    Raises:
        SystemExit: It makes no steps.
    """
    with running([job], SETTING) as started:
        if not warm_up(started):
            sys.exit(f"{job.model} made no steps alone")
        processes = [process for _, process in started]
        before_s, began_s = used_s(processes), time.monotonic()
        seen = look(started, window_s)
        busy = (used_s(processes) - before_s) / (time.monotonic() - began_s)
    return Alone(seen.times_s[0], min(1.0, busy / len(os.sched_getaffinity(0))))


def profile(job: Job, known: Alone) -> Profile:
    """What Colane would have learnt from that run."""
    occupancy = known.busy_ratio * known.step_s * OCCUPANCY_UNITS_PER_S
    step_s = Value(known.step_s, ValueSource.MEASURED, STEPS_SEEN)
    return Profile(key=key_of(job), step_s=step_s, occupancy=Value(occupancy, ValueSource.MEASURED, STEPS_SEEN))


def foresee(beliefs: Beliefs, jobs: Sequence[Job]) -> list[Answer]:
    """Slowdown of each job of a set."""
    answers: list[Answer] = []
    for job in jobs:
        key = key_of(job)
        beside = tuple([key_of(other) for other in jobs if other is not job])
        rate = beliefs.rate(
            JobSpec(name="", family=key.family, batch_size=key.batch_size),
            Situation(DEVICE, sharing=SHARING, beside=beside),
        )
        answers.append(Answer(rate.slowdown, rate.spread_ratio))
    return answers


def learn(beliefs: Beliefs, jobs: Sequence[Job], known: Mapping[Job, Alone], together_s: Sequence[float]) -> None:
    """Teach what a set showed."""
    alone_s = [known[job].step_s for job in jobs]
    found = delta(alone_s, together_s)
    beliefs.learn_set(
        SetMeasurement(
            keys=tuple([key_of(job) for job in jobs]), sharing=SHARING, step_alone_s=tuple(alone_s),
            step_together_s=tuple(together_s), steps=(STEPS_SEEN,) * len(alone_s), delta=found, delta_general=found,
            at_s=0.0,
        )
    )  # fmt: skip


def one_set(beliefs: Beliefs, jobs: Sequence[Job], known: Mapping[Job, Alone], window_s: float) -> list[Verdict]:
    """Foresee, run, compare, learn."""
    foreseen = foresee(beliefs, jobs)
    together_s = settled(measure(jobs, SETTING, window_s)).times_s
    learn(beliefs, jobs, known, together_s)
    slowdowns = [step_s / known[job].step_s for job, step_s in zip(jobs, together_s, strict=True)]
    found = [Verdict(*pair) for pair in zip(foreseen, slowdowns, strict=True)]
    names = ", ".join(
        f"{job.model} {job.width:g}: {v.foreseen.slowdown:.2f} / {v.seen:.2f}"
        for job, v in zip(jobs, found, strict=True)
    )
    print(names, flush=True)
    return found


def report(sets: Sequence[Sequence[Verdict]]) -> None:
    """Print how well all of it was foreseen."""
    each = [verdict for one in sets for verdict in one]
    errors = [abs(verdict.foreseen.slowdown / verdict.seen - 1) for verdict in each]
    held = [verdict.foreseen.holds(verdict.seen) for verdict in each]
    pays = [[sum(1 / s for s in side) >= 1 for side in (_foreseen(one), _seen(one))] for one in sets]
    right = [foreseen == seen for foreseen, seen in pays]
    median, p95 = np.percentile(errors, [50, 95])
    print(f"{len(each)} jobs of {len(sets)} sets: error median {median:.1%}, p95 {p95:.1%}; in the 80 % interval")
    print(f"{np.mean(held):.0%}; sum of speeds >= 1 foreseen right {np.mean(right):.0%}")


def _foreseen(one: Sequence[Verdict]) -> list[float]:
    return [verdict.foreseen.slowdown for verdict in one]


def _seen(one: Sequence[Verdict]) -> list[float]:
    return [verdict.seen for verdict in one]


def main() -> None:
    """Measure all kinds alone, then draw the sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window-s", type=float, default=4.0)
    parser.add_argument("--largest", type=int, default=3, help="Jobs in a set at most.")
    options = parser.parse_args()
    known = {job: alone(job, options.window_s) for job in KINDS}
    beliefs, rng = Beliefs(profiles=[profile(job, one) for job, one in known.items()]), Random(options.seed)  # noqa: S311
    print("foreseen / seen slowdown")
    sets = [
        one_set(beliefs, rng.sample(KINDS, rng.randint(2, options.largest)), known, options.window_s)
        for _ in range(options.sets)
    ]
    report(sets)


if __name__ == "__main__":
    main()
