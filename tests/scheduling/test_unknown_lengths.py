"""Jobs whose owners tell no length go by how long those of their family ran that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from random import Random
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.simulate.scenes import cluster, run
from tests.simulate.scenes import job as trace_job

from .life import Coming, Life, job

ONE = [make_node("n0", 1)]


def untold(at_s: float, run_s: float, family: str) -> Coming:
    """A job that saves its state and whose owner says nothing of how long it runs."""
    return job(at_s, run_s, family=family, preemptible=True, share=False)


BEFORE = [untold(at_s, run_s, family) for at_s in range(8) for run_s, family in ((1_000.0, "long"), (50.0, "short"))]
LATE_S = 10_000.0


def late(policy: str, *before: Coming) -> list[int]:
    """In what order a long and a short job are through that come at one time, after others of their families."""
    coming = [*before, untold(LATE_S, 1_000.0, "long"), untold(LATE_S, 50.0, "short")]
    life = Life(create(policy), ONE, coming).run()
    return sorted((len(before) + 1, len(before) + 2), key=lambda number: life.spans[number][-1][1])


def test_the_family_whose_jobs_ended_sooner_goes_first() -> None:
    assert late("colane", *BEFORE) == [18, 17]


def test_one_that_is_about_to_end_by_its_family_is_not_stopped_for_a_new_one() -> None:
    coming = [*BEFORE, untold(LATE_S, 1_000.0, "long"), untold(LATE_S + 800.0, 1_000.0, "long")]
    life = Life(create("colane"), ONE, coming).run()
    assert life.spans[17] == [(LATE_S, LATE_S + 1_000.0)]


def test_a_job_that_starts_anew_each_time_teaches_what_its_last_attempt_took() -> None:
    life = Life(create("colane"), ONE, [job(0, 300.0, family="f"), untold(0, 40.0, "g")]).run()
    known = life.core.state.knowledge.lengths
    assert [(one.number, one.jobs) for one in known.of_family("f").bins] == [(32, 1.0)]  # type: ignore[union-attr]
    assert [(one.number, one.jobs) for one in known.of_family("g").bins] == [(21, 1.0)]  # type: ignore[union-attr]


MIXED_S = (60.0, 300.0, 900.0, 2_400.0)
EXPONENTIAL_S = tuple([-900.0 * log(1 - (n + 0.5) / 32) for n in range(32)])


def mean_jct_s(policy: str, lengths_s: tuple[float, ...], draw: int, *, tells_steps: bool) -> float:
    """Of 120 jobs of one family on eight GPUs at a load of 1.2, with such lengths; none of them says its steps."""
    random, at_s, jobs = Random(draw), 0.0, []
    for number in range(1, 121):
        run_s = random.choice(lengths_s)
        steps = int(run_s) if tells_steps else None
        jobs.append(trace_job(number, at_s, run_s, steps=steps, share=False))
        at_s += random.expovariate(8 * 1.2 / fmean(lengths_s))
    rows = run(jobs, cluster(4, 4), create(policy), NeutralWorld()).ledger.rows
    return fmean([end_s - submit_s for submit_s, end_s in zip(rows.submit_s, rows.end_s, strict=True)])


@pytest.mark.parametrize("tells_steps", [False, True], ids=["nothing-told", "steps-told-not-counted"])
@pytest.mark.parametrize(("lengths_s", "most"), [((900.0,), 1.03), (MIXED_S, 0.95)], ids=["all-alike", "mixed"])
@pytest.mark.parametrize("draw", range(3))
def test_jobs_of_one_family_and_of_unknown_length_end_no_later_than_in_order_of_arrival(
    draw: int, lengths_s: tuple[float, ...], most: float, tells_steps: bool
) -> None:
    """Alike jobs that take turns, or lose their places shortly before their end, would all end last."""
    in_order = mean_jct_s("fifo", lengths_s, draw, tells_steps=tells_steps)
    assert mean_jct_s("colane", lengths_s, draw, tells_steps=tells_steps) <= most * in_order


def test_jobs_whose_past_tells_nothing_of_what_is_left_end_as_soon_as_in_order_of_arrival() -> None:
    """What few ends tell of them is chance: every stop for it is lost."""
    ratios = [
        mean_jct_s("colane", EXPONENTIAL_S, draw, tells_steps=False)
        / mean_jct_s("fifo", EXPONENTIAL_S, draw, tells_steps=False)
        for draw in range(8)
    ]
    assert fmean(ratios) <= 1.02


SPREADS = (0.1, 0.5, 1.0)
CRASH_S, CRASH_SPREAD = 120.0, 0.2
RESTART_S = 60.0


class OneOf(NamedTuple):
    """A job of a family, on one GPU."""

    at_s: float
    run_s: float
    family: int


def of_families(
    draw: int, families: int, each: int, spread: float, load: float, *, crashes: float = 0.0, gpus: int = 4
) -> tuple[list[OneOf], list[float]]:
    """Jobs of so many families for so many GPUs, and the median length of each, from 10 minutes to 24 hours.

    A part of all crashes after some two minutes.
    """
    random = Random(draw)
    middles_s = [exp(random.uniform(log(600.0), log(86_400.0))) for _ in range(families)]
    mean_s = (1 - crashes) * fmean(middles_s) * exp(spread**2 / 2) + crashes * CRASH_S
    at_s, jobs = 0.0, list[OneOf]()
    for _ in range(families * each):
        at_s += random.expovariate(gpus * load / mean_s)
        family = random.randrange(families)
        run_s = middles_s[family] * random.lognormvariate(0.0, spread)
        if crashes and random.random() < crashes:
            run_s = CRASH_S * random.lognormvariate(0.0, CRASH_SPREAD)
        jobs.append(OneOf(at_s, run_s, family))
    return jobs, middles_s


def mean_s(jobs: Sequence[OneOf], *, preemptible: bool = True, gpus: int = 4) -> float:
    """What these take from submission to end under `colane`, on average."""
    some = [
        trace_job(number, one.at_s, one.run_s, family=f"f{one.family}", share=False, preemptible=preemptible)
        for number, one in enumerate(jobs, 1)
    ]
    rows = run(some, cluster(gpus), create("colane"), NeutralWorld(), DriverConfig(restart_s=RESTART_S)).ledger.rows
    return fmean([end_s - submit_s for submit_s, end_s in zip(rows.submit_s, rows.end_s, strict=True)])


@pytest.mark.parametrize("load", [1.0, 1.3])
@pytest.mark.parametrize(("families", "each"), [(4, 15), (12, 5)])
def test_jobs_that_may_be_stopped_end_no_later_than_those_that_may_not(families: int, each: int, load: float) -> None:
    """Before, 20 families of 15 ended 20 to 39 % later on average if they could be stopped."""
    draws = [(draw, spread) for spread in SPREADS for draw in range(2)]
    stopped, none = (
        [mean_s(of_families(draw, families, each, spread, load)[0], preemptible=may) for draw, spread in draws]
        for may in (True, False)
    )
    assert fmean([one / other for one, other in zip(stopped, none, strict=True)]) <= 1.01


EDGES_S = 16.0 * 2.0 ** (np.arange(161) / 8)
"""Between bins of an eighth of an octave, from 16 s to half a year."""


class Gittins:
    """A bare loop of the rule that knows the law of each family: of least Gittins quotient first, stopping others."""

    def __init__(self, middles_s: Sequence[float], spread: float, crashes: float) -> None:
        def until(middle_s: float, spread: float) -> NDArray[np.float64]:
            return np.array([NormalDist(log(middle_s), spread).cdf(log(edge_s)) for edge_s in EDGES_S])

        crashed = crashes * until(CRASH_S, CRASH_SPREAD)
        self._masses = [np.diff((1 - crashes) * until(one_s, spread) + crashed) for one_s in middles_s]
        self._known = dict[tuple[int, int], float]()

    def index_s(self, family: int, age: int) -> float:
        """Of a job that has run as far as the lower edge of a bin; -1 is one that is new."""
        if (family, age) not in self._known:
            first, had_s = max(age, 0), float(EDGES_S[age]) if age >= 0 else 0.0
            masses, ends_s = self._masses[family][first:], EDGES_S[first + 1 :] - had_s
            through = np.cumsum(masses)
            middles_s = np.maximum(np.sqrt(EDGES_S[first:-1] * EDGES_S[first + 1 :]) - had_s, ends_s / 2)
            spent_s = np.cumsum(masses * middles_s) + ends_s * np.maximum(through[-1] - through, 0.0)
            seen = through > 1e-9 * max(through[-1], 1e-12)
            self._known[family, age] = float(min(spent_s[seen] / through[seen])) if through[-1] > 1e-12 else 600.0
        return self._known[family, age]

    def mean_s(self, jobs: Sequence[OneOf], gpus: int) -> float:
        """What these take from submission to end, on average; who was stopped begins with `RESTART_S`."""
        had_s, owed_s = [0.0] * len(jobs), [0.0] * len(jobs)
        live, runs, ends_s, now_s, came = set[int](), set[int](), dict[int, float](), 0.0, 0

        def rank(number: int) -> tuple[float, float, int]:
            age = int(np.searchsorted(EDGES_S, had_s[number] + 1e-6, "right")) - 1
            return self.index_s(jobs[number].family, age // 2 * 2 if age >= 0 else -1), -had_s[number], number

        while len(ends_s) < len(jobs):
            while came < len(jobs) and jobs[came].at_s <= now_s:
                live.add(came)
                came += 1
            firsts = set(sorted(live, key=rank)[:gpus])
            for stopped in runs - firsts:
                owed_s[stopped] = RESTART_S
            runs = firsts
            steps_s = [jobs[came].at_s - now_s] if came < len(jobs) else []
            for number in runs:
                steps_s.append(owed_s[number] + jobs[number].run_s - had_s[number])
                further = EDGES_S[::2][EDGES_S[::2] > had_s[number] + 1e-6]
                steps_s.append(owed_s[number] + float(further[0]) - had_s[number] + 1e-6)
            step_s = min(steps_s)
            now_s += step_s
            for number in sorted(runs):
                paid_s = min(owed_s[number], step_s)
                owed_s[number] -= paid_s
                had_s[number] += step_s - paid_s
                if had_s[number] >= jobs[number].run_s - 1e-6:
                    ends_s[number] = now_s
                    live.discard(number)
                    runs = runs - {number}
        return fmean([ends_s[number] - one.at_s for number, one in enumerate(jobs)])


@pytest.mark.parametrize(("spread", "crashes", "most"), [(0.1, 0.0, 1.06), (0.5, 0.0, 1.06), (0.5, 0.3, 1.12)])
def test_jobs_end_almost_as_soon_as_by_the_rule_that_knows_the_law_of_each_family(
    spread: float, crashes: float, most: float
) -> None:
    """What a family's law is `colane` has to learn from its ends, and from what runs on; 1.016, 1.049 and 1.091."""
    ratios = list[float]()
    for draw in range(8):
        jobs, middles_s = of_families(draw, 20, 15, spread, 1.2, crashes=crashes, gpus=8)
        ratios.append(mean_s(jobs, gpus=8) / Gittins(middles_s, spread, crashes).mean_s(jobs, 8))
    assert fmean(ratios) <= most
