"""Jobs whose owners tell no length go by how long those of their family ran that have ended."""

from __future__ import annotations

from math import exp, log
from random import Random
from statistics import fmean

import pytest

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


def mean_of_families(draw: int, families: int, each: int, spread: float, load: float, *, preemptible: bool) -> float:
    """Of so many families of so many jobs on four GPUs, each of a length of its own, from 10 minutes to 24 hours."""
    random = Random(draw)
    middles_s = [exp(random.uniform(log(600.0), log(86_400.0))) for _ in range(families)]
    mean_s, at_s, jobs = fmean(middles_s) * exp(spread**2 / 2), 0.0, []
    for number in range(1, families * each + 1):
        at_s += random.expovariate(4 * load / mean_s)
        family = random.randrange(families)
        run_s = middles_s[family] * random.lognormvariate(0.0, spread)
        jobs.append(trace_job(number, at_s, run_s, family=f"f{family}", share=False, preemptible=preemptible))
    costs = DriverConfig(restart_s=60.0)
    rows = run(jobs, cluster(4), create("colane"), NeutralWorld(), costs).ledger.rows
    return fmean([end_s - submit_s for submit_s, end_s in zip(rows.submit_s, rows.end_s, strict=True)])


@pytest.mark.parametrize("load", [1.0, 1.3])
@pytest.mark.parametrize(("families", "each"), [(4, 15), (12, 5)])
def test_jobs_that_may_be_stopped_end_no_later_than_those_that_may_not(families: int, each: int, load: float) -> None:
    """Before, 20 families of 15 ended 20 to 39 % later on average if they could be stopped."""
    draws = [(draw, spread) for spread in SPREADS for draw in range(2)]
    stopped, none = (
        [mean_of_families(draw, families, each, spread, load, preemptible=may) for draw, spread in draws]
        for may in (True, False)
    )
    assert fmean([one / other for one, other in zip(stopped, none, strict=True)]) <= 1.01
