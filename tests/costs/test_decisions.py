"""What an arrival and an end cost while every GPU is taken: counted in calls, beside `fifo` and more families."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median

import pytest
from benchmarks.calls import calls_of
from benchmarks.decide import Size, fill, submissions

from colane.core import Core, core
from colane.core.events import Ended, Event, Launched, Progressed, Submitted
from colane.model.job import Exit, Job, JobId, JobSpec
from colane.model.progress import Progress

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

QUEUED = 400
ARRIVALS = 4
ENDS = 4

ENDED = 40
"""Of each family so many have ended before."""

ARRIVAL_MAX, END_MAX = 4.4, 6.6
"""Times what `fifo` does, which looks at the head of the line alone; a tenth above what was measured on 2026-11-30."""


def taken(full: Core, events: Sequence[Event], at_s: float) -> None:
    """What happens, in all the steps it takes."""
    full.step(events, at_s)
    while full.goes_on:
        full.step((), at_s)


@cache
def made(policy: str, families: int, queued: int = QUEUED, nodes: int = 32) -> Core:
    """A full cluster with a queue."""
    return fill(policy, Size(nodes=nodes, gpus=8, queued=queued, families=families))[0]


@cache
def calls_an_arrival(policy: str, families: int, queued: int = QUEUED, nodes: int = 32) -> float:
    """Functions called for one job that comes and finds nothing, where others of its family wait."""
    full = made(policy, families, queued, nodes)
    coming = submissions(queued, 2 * ARRIVALS, families)
    for event in coming[:ARRIVALS]:
        taken(full, [event], 3.0)
    calls = [calls_of(taken, full, [event], 3.1 + k / 10) for k, event in enumerate(coming[ARRIVALS:])]
    assert all(job.placement is None for job in (full.state.jobs[event.job] for event in coming))
    return median(calls)


@cache
def calls_an_end(policy: str, families: int, queued: int = QUEUED, nodes: int = 32) -> float:
    """Functions called for one job that ends, whose GPU another takes."""
    full = made(policy, families, queued, nodes)
    for number in range(families * ENDED):  # so that no end of these few has its family judged anew
        full.state.knowledge.note_length(f"f{number % families}", 600.0)
    running = [job for job in full.state.jobs.values() if job.placement is not None]
    for job in running[:ENDS]:
        taken(full, [_end(job)], 4.0)
    calls = [calls_of(taken, full, [_end(job)], 4.1 + k / 10) for k, job in enumerate(running[ENDS : 2 * ENDS])]
    assert sum(job.placement is not None for job in full.state.jobs.values()) == len(running), (
        "others took their places"
    )
    return median(calls)


def calls_an_end_among_stepping(families: int) -> float:
    """The same under `colane` where all that runs makes steps, so that sharing may be tried wherever it is unmeasured.

    All that may be tried was looked at before: what an end costs is what it changes.
    """
    full = fill("colane", Size(nodes=32, gpus=8, queued=QUEUED, families=families))[0]
    begun, now_s = set[JobId](), 2.0

    def begin(at_s: float) -> None:
        while new := [job for job in full.state.jobs.values() if job.placement is not None and job.id not in begun]:
            begun.update(job.id for job in new)
            taken(full, [Launched(job.id, job.attempt, 1, at_s) for job in new], at_s)
            at_s += 0.01
            first = Progress(at_s=at_s, steps=1, first_step_s=at_s, last_step_s=at_s)
            taken(full, [Progressed(job.id, job.attempt, first) for job in new], at_s)

    begin(now_s)
    calls = list[int]()
    for job in [job for job in full.state.jobs.values() if job.placement is not None][: 2 * ENDS]:
        now_s += 0.1
        calls.append(calls_of(taken, full, [Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, now_s)], now_s))
        begin(now_s)
    return median(calls[ENDS:])


def _end(job: Job) -> Ended:
    return Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0)


@pytest.mark.parametrize("policy", ["fifo", "colocate", "colane"])
def test_an_arrival_costs_the_same_however_many_families_wait(policy: str) -> None:
    assert calls_an_arrival(policy, 128) < 2 * calls_an_arrival(policy, 16)


@pytest.mark.parametrize("policy", ["sjf", "srtf", "colane"])
def test_an_end_costs_little_more_the_more_families_wait(policy: str) -> None:
    assert calls_an_end(policy, 128) < 1.3 * calls_an_end(policy, 26)


@pytest.mark.parametrize(("nodes", "most"), [(8, 4.2), (16, 2.0), (32, 2.0), (68, 1.9)])
def test_an_end_under_colane_costs_little_more_where_there_are_more_families_than_gpus(nodes: int, most: float) -> None:
    """With 1,000 on 256 GPUs 17 times as much, where each was asked whether sharing may be tried with any group.

    What is left is that pairs meet for the first time: 32 jobs are weighed for the GPU on which one has started, and
    in a pool of 64 GPUs, where everything is looked at each time, 64 jobs for each of these.
    """
    assert calls_an_end("colane", 1_000, 2_000, nodes) < most * calls_an_end("colane", 26, 2_000, nodes)


def test_an_end_asks_no_job_again_whether_sharing_may_be_tried_with_those_that_run() -> None:
    """Each of them on each GPU took 1,430,000 calls."""
    few = calls_an_end_among_stepping(26)
    assert few < 60 * calls_an_end("fifo", 26)
    assert calls_an_end_among_stepping(1_000) < 4 * few


def test_what_an_event_costs_by_the_shadow_price_depends_on_neither_queue_nor_cluster() -> None:
    few, many = ("colane", 26, 2_000, 34), ("colane", 26, 10_000, 68)
    assert calls_an_arrival(*many) < 1.5 * calls_an_arrival(*few)
    assert calls_an_end(*many) < 1.5 * calls_an_end(*few)


def calls_an_end_beside_a_gang(nodes: int) -> float:
    """The same under `colane` where a job of eight GPUs waits, too."""
    full = fill("colane", Size(nodes=nodes, gpus=8, queued=QUEUED + 8 * nodes, families=26))[0]
    gang = JobSpec(name="gang", family="f0", batch_size=64, gpus=8)
    taken(full, [Submitted(JobId(10**6), gang)], 3.0)
    running = [job for job in full.state.jobs.values() if job.placement is not None]
    for job in running[:ENDS]:
        taken(full, [_end(job)], 4.0)
    return median([calls_of(taken, full, [_end(job)], 4.1 + k / 10) for k, job in enumerate(running[ENDS : 3 * ENDS])])


def test_an_end_beside_a_waiting_gang_costs_the_same_however_large_the_cluster_is() -> None:
    small, large = calls_an_end_beside_a_gang(34), calls_an_end_beside_a_gang(68)
    assert large < 1.5 * small
    assert small < 4 * calls_an_end("colane", 26)


LEARNING_ENDS = 40
"""Among so many ends some have lengths judged anew."""


def calls_a_lesson(queued: int) -> float:
    """Functions called for an end after which all that waits is ranked anew, as lengths are judged otherwise."""
    full = made("colane", 26, queued)
    running = [job for job in full.state.jobs.values() if job.placement is not None][-LEARNING_ENDS:]
    judged, most = full.state.beliefs.lengths.version, 0.0
    for number, job in enumerate(running):
        most = max(most, calls_of(taken, full, [_end(job)], 5.0 + number / 10))
    assert full.state.beliefs.lengths.version > judged
    return most


def test_a_lesson_about_lengths_works_out_what_is_left_once_of_all_that_are_alike() -> None:
    """A waiting job of which this is asked anew takes 51 calls.

    What families have in common is learnt anew, and nothing is known of any by itself: so it is asked of all. They are
    ranked 1,024 a step, and what each step asks before that counts, too.
    """
    few, many = QUEUED, 5 * QUEUED
    assert calls_a_lesson(many) - calls_a_lesson(few) <= 18 * (many - few)


def test_an_event_by_the_shadow_price_costs_a_few_times_one_under_fifo() -> None:
    assert calls_an_arrival("colane", 26) <= ARRIVAL_MAX * calls_an_arrival("fifo", 26)
    assert calls_an_end("colane", 26) <= END_MAX * calls_an_end("fifo", 26)


def test_where_everything_is_looked_at_not_every_gpu_is_weighed_for_every_job() -> None:
    """Each would take 800 times what `fifo` does."""
    assert calls_an_arrival("colane:look_s_per_gpu=0", 26) <= 200 * calls_an_arrival("fifo", 26)


def test_pools_of_every_size_are_looked_at_by_what_has_changed() -> None:
    """A look at all at each event took 5 and 12 times as many calls for an arrival on 8 and 64 GPUs, 6 for an end."""
    for nodes in (1, 8):
        assert calls_an_arrival("colane", 26, nodes=nodes) <= 1.1 * calls_an_arrival("colane", 26)
    assert calls_an_end("colane", 26, nodes=8) <= 1.1 * calls_an_end("colane", 26)


def test_an_arrival_under_colane_costs_a_few_times_one_under_fifo() -> None:
    assert calls_an_arrival("colane", 26) <= ARRIVAL_MAX * calls_an_arrival("fifo", 26)


def test_an_end_under_colane_costs_a_few_times_one_under_fifo() -> None:
    assert calls_an_end("colane", 26) <= END_MAX * calls_an_end("fifo", 26)
