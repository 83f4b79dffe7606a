"""What a further move of an elastic job must bring: more the more often it was moved, less the longer it has stayed."""

from __future__ import annotations

import pytest

from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Placement, Slot
from colane.scheduling.mechanisms.elastic.running import FORGIVEN_S, MOVES_MAX, REGAINS, STAYS_S, dearer, may_move


def moved(times: int) -> Job:
    """A job that was moved so often, and has run since 0 s."""
    spec = JobSpec(name="j", family="f", gpus=2, sizes=(1, 2), preemptible=True)
    job = Job(id=JobId(1), spec=spec, submit_s=0.0, attempt=times + 1, placement=Placement((Slot(GpuId("n0", 0), 0),)))
    return job.of_run(job.run._replace(start_s=0.0))


def test_a_move_must_regain_the_more_the_oftener_it_was_moved_and_the_less_the_longer_it_has_stayed() -> None:
    assert [dearer(moved(n), 0.0) for n in range(4)] == [REGAINS, 2 * REGAINS, 4 * REGAINS, 8 * REGAINS]
    assert dearer(moved(10), FORGIVEN_S) == dearer(moved(10), 0.0) / 2
    assert dearer(moved(10), 1e7) == REGAINS


@pytest.mark.parametrize("times", [MOVES_MAX, MOVES_MAX + 3])
def test_one_that_was_moved_often_gives_up_gpus_again_once_it_has_stayed_long_enough(times: int) -> None:
    due_s = STAYS_S * (times - MOVES_MAX + 1)
    assert not may_move(moved(times), due_s - 1.0)
    assert may_move(moved(times), due_s)
