"""What each event costs by kind of job, counted in calls, as ratios to `fifo-skip` on the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from csv import DictReader
from pathlib import Path
from statistics import median

import pytest
from benchmarks.calls import calls_of
from benchmarks.decide import KINDS, Metered, Size, of_kind, submissions

from colane.core import core
from colane.core.events import Ended, Submitted, Tick
from colane.model.job import Exit

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

SIZE = Size(nodes=9, gpus=8, queued=200, families=26)
"""More GPUs than where everything is looked at each time."""

REPEAT = 4

EVENTS = ("arrival", "report", "end", "look", "many")


def most() -> Iterator[tuple[Size, str, dict[str, float]]]:
    """The cells of `kinds.csv`: times what `fifo-skip` calls, a tenth above what was measured, so that none grows.

    Those that run have done so for 300 s and may leave; `fifo-skip` looks at nothing in a look, so that one is a count.
    Beside more GPUs `python benchmarks/decide.py --matrix --calls` prints them.
    """
    with (Path(__file__).parent / "kinds.csv").open(encoding="utf-8") as file:
        for row in DictReader(file):
            size = Size(int(row["gpus"]) // 8, 8, int(row["queued"]), int(row["families"]))
            yield size, row["kind"], {event: float(row[event]) for event in EVENTS}


@pytest.mark.parametrize(
    ("size", "kind", "ratios"),
    [pytest.param(*cell, id=f"{cell[1]}-{8 * cell[0].nodes}-{cell[0].families}") for cell in most()],
)
def test_no_kind_of_job_costs_more_beside_fifo(size: Size, kind: str, ratios: dict[str, float]) -> None:
    ours, base = [of_kind(policy, kind, size, REPEAT, calls_of) for policy in ("colane", "fifo-skip")]
    assert ratios.keys() == ours.keys() - {"fill", "longest"}
    dear = {event: ours[event] / base[event] for event, ratio in ratios.items() if ours[event] > ratio * base[event]}
    assert not dear


def test_the_cells_are_of_every_kind() -> None:
    assert {(size.nodes, size.families) for size, kind, _ in most() if kind == "plain"} == {
        (9, 26),
        (1, 26),
        (30, 26),
        (1, 1_000),
        (8, 1_000),
    }
    assert len(list(most())) == 5 * len(KINDS)


def calls_beside_free_gpus(kind: str, nodes: int) -> float:
    """Functions called for an end where no job waits, as some GPUs are free."""
    world = Metered("colane", kind, Size(nodes, 8, 0, SIZE.families), _unmetered)
    jobs, free = list[Submitted](), 7.6 * nodes
    while (free := free - KINDS[kind](len(jobs), 1).gpus) >= 0:
        jobs += submissions(len(jobs), 1, SIZE.families, kind)
    world.step(jobs, 1.0)
    world.launch(2.0)
    world.step([Tick()], 302.5)
    world.step([Tick()], 703.0)
    running = [job for job in world.core.state.jobs.values() if job.placement is not None and len(job.gpus_held) < 9]
    world.meter = calls_of
    return median(
        world.step([Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0)], 704.0 + number / 10)
        for number, job in enumerate(running[:REPEAT])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_running_job_is_asked_anew_whatever_is_free(kind: str) -> None:
    """Elastic jobs, and gangs that may be stopped, were asked in each plan: nine times as many calls on as many."""
    assert calls_beside_free_gpus(kind, 90) <= 1.3 * calls_beside_free_gpus(kind, 10)


def calls_a_lesson(kind: str, queued: int, families: int = SIZE.families) -> float:
    """Functions called for that of twelve ends after which most is judged anew, as lengths are learnt."""
    world = Metered("colane", kind, SIZE._replace(nodes=32, queued=queued, families=families), _unmetered)
    world.step(submissions(0, 256 + queued, families, kind), 1.0)
    world.launch(2.0)
    world.step([Tick()], 302.5)
    running = [
        job
        for job in world.core.state.jobs.values()
        if job.placement is not None and len({gpu.node for gpu in job.gpus_held}) == 1
    ]
    world.meter = calls_of
    return max(
        world.step([Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0)], 303.0 + number / 10)
        for number, job in enumerate(running[:12])
    )


def _unmetered(action: Callable[[], object]) -> float:
    action()
    return 0.0


def test_a_lesson_about_lengths_judges_no_gang_anew_when_it_is_overdue() -> None:
    """Those of a family that have had as much are overdue as long after they came: asked of each it took 31 calls."""
    few, many = 400, 2_000
    assert calls_a_lesson("untold-gang", many) - calls_a_lesson("untold-gang", few) <= 10 * (many - few)


@pytest.mark.parametrize(("kind", "most"), [("plain", 2.2), ("wide", 4), ("guaranteed", 1.7)])
def test_a_lesson_about_lengths_asks_nothing_anew_where_they_are_told(kind: str, most: float) -> None:
    """With 1,000 families each of its classes was ranked anew."""
    assert calls_a_lesson(kind, 400, 1_000) <= most * calls_a_lesson(kind, 400)


def calls_an_arrival(nodes: int) -> float:
    """Functions called for a job that may be stopped, of 1,000 families, beside others on each GPU."""
    world, total = Metered("colane", "stoppable", Size(nodes, 8, 0, 1_000), _unmetered), 8 * nodes + 60
    world.step(submissions(0, total, 1_000, "stoppable"), 1.0)
    world.launch(2.0)
    world.step([Tick()], 302.5)
    world.meter = calls_of
    return median(world.step([one], 303.0 + one.job / 1e4) for one in submissions(total, REPEAT, 1_000, "stoppable"))


def test_an_arrival_is_weighed_for_so_many_sets_of_co_runners_however_many_there_are() -> None:
    assert calls_an_arrival(15) <= 1.2 * calls_an_arrival(9)
