"""Jobs share a device that work outside Colane uses once it was tried there, and by what that taught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Ended, GpusObserved, Launched, NodeRegistered, Outcome, Progressed, Submitted
from colane.model.hardware import BESIDE_OTHERS
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.profile import SetMeasurement
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.deadlines.seats import UNKNOWN_PACE, Allowed, NoPromise, promise
from colane.scheduling.registry import preset

from .audit import audit
from .worlds import GIB, make_node

USED = 0.6
STEP_S = 0.1  # alone, of what others leave


class World:
    """One device of which others use much; its jobs step as they are told, and are sampled each second."""

    def __init__(self) -> None:
        self.core, self.now_s, self.steps = Core(preset("colane"), ClusterState(Beliefs()), CoreConfig()), 0.0, 0.0
        self.measured: list[SetMeasurement] = []
        self.at(NodeRegistered(make_node("n0", 1)))
        (gpu,) = self.core.state.nodes["n0"].node.gpus
        self.at(GpusObserved("n0", (replace(gpu, others_ratio=USED),)))

    def at(self, *events: object) -> Outcome:
        outcome = self.core.step(events, self.now_s)  # type: ignore[arg-type]
        self.measured.extend(outcome.measurements)
        audit(self.core.state)
        return outcome

    def submit(self, number: int, family: str) -> None:
        self.at(Submitted(JobId(number), JobSpec(name=family, family=family, steps_total=100_000, preemptible=True)))

    def is_there(self, number: int) -> bool:
        job = self.core.state.jobs[JobId(number)]
        if job.state is JobState.ASSIGNED:
            self.at(Launched(job.id, job.attempt, 7, self.now_s))
        return job.placement is not None

    def go(self, seconds: int, slowdown: float, *numbers: int) -> None:
        """Those of these jobs that are there step, each so much slower than alone where they are two."""
        for _ in range(seconds):
            self.now_s += 1.0
            there = [number for number in numbers if self.is_there(number)]
            self.steps += (1 - USED) / STEP_S / (slowdown if len(there) > 1 else 1.0)
            for number in there:
                job = self.core.state.jobs[JobId(number)]
                sample = Progress(
                    at_s=self.now_s, steps=int(self.steps), first_step_s=job.since_s, last_step_s=self.now_s,
                    others_s=USED * self.now_s, persistent_bytes=GIB, peak_bytes=GIB, occupancy_ratio=0.3,
                )  # fmt: skip
                self.at(Progressed(job.id, job.attempt, sample))

    def end(self, *numbers: int) -> None:
        for number in numbers:
            job = self.core.state.jobs[JobId(number)]
            self.at(Ended(job.id, job.attempt, "exited", Exit(0, None), job.start_s or 0.0, self.now_s))


@pytest.mark.parametrize(("slowdown", "shares"), [(1.1, True), (2.0, False)])
def test_a_pair_is_tried_beside_others_and_shared_from_then_on_where_it_gains(slowdown: float, *, shares: bool) -> None:
    world = World()
    for number, family in ((1, "a"), (2, "b")):  # each alone, or how fast it is would not be known
        world.submit(number, family)
        world.go(30, 1.0, number)
        world.end(number)
    assert {profile.key.family for profile in world.core.state.beliefs.profiles.values() if profile.step_s} == {
        "a",
        "b",
    }
    due = JobSpec(name="a", family="a", steps_total=99, deadline_s=9e9)
    assert promise(ClusterView(world.core.state, world.now_s), due, Allowed()) == NoPromise(UNKNOWN_PACE), (
        "nothing says what others will leave"
    )
    world.submit(3, "a")
    world.go(30, slowdown, 3)
    world.submit(4, "b")
    world.go(90, slowdown, 3, 4)
    assert world.core.state.jobs[JobId(4)].placement is not None, "it was tried"
    (measured, *_) = world.measured
    assert measured.sharing.endswith(BESIDE_OTHERS)
    assert measured.slowdowns == pytest.approx([slowdown] * 2, rel=0.05)
    world.end(3, 4)
    world.submit(5, "a")
    world.go(30, slowdown, 5)
    world.submit(6, "b")
    world.go(2, slowdown, 5, 6)
    assert world.is_there(6) == shares
