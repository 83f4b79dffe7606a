"""Room made by parking: the victim lives on, the urgent job has its device, and the victim comes back."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, Outcome, ProfileDeclared, Progressed, Submitted
from colane.model.hardware import CPU_DEVICE_TYPE
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.plan import Move, Park, Start, Stop
from colane.model.profile import ProfileKey, SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.foresight import scene_of
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import make_node

from .life import step_time

LONG, SHORT = JobId(1), JobId(2)


class Machine:
    """A core over one node whose agent says what it is told to."""

    def __init__(self, policy: str, devices: int = 1, gpu_type: str = CPU_DEVICE_TYPE, **of_node: Any) -> None:
        self.core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(protection_factor=0.0))
        self.now_s = 0.0
        node = replace(make_node("n0", devices, gpu_type), **of_node)
        self.do(NodeRegistered(node), ProfileDeclared(step_time(1.0, gpu_type)))

    def do(self, *events: Event, after_s: float = 1.0) -> Outcome:
        self.now_s += after_s
        outcome = self.core.step(events, self.now_s)
        assert outcome.rejected is None
        audit(self.core.state)
        return outcome

    def run(self, job: JobId, **needs: object) -> None:
        self.do(Submitted(job, JobSpec(name="j", family="f", **needs)))  # type: ignore[arg-type]
        self.launch(job)

    def launch(self, job: JobId) -> None:
        self.do(Launched(job, 1, 100 + job, self.now_s))
        self.sample(job)
        self.do()

    def sample(self, job: JobId, **changes: float | None) -> Outcome:
        values: dict[str, object] = {"persistent_bytes": 1 << 20, "steps": 5, **changes}
        sample = Progress(at_s=self.now_s, first_step_s=self.now_s, **values)  # type: ignore[arg-type]
        return self.do(Progressed(job, 1, sample))

    def state(self, job: JobId) -> JobState:
        return self.core.state.jobs[job].state

    def cleared(self) -> AbstractSet[int]:
        """Jobs that wait, for which others leave their GPUs, as starts are foreseen."""
        return scene_of(self.core.state, self.core.policy, "default", self.now_s).cleared


@pytest.mark.parametrize(
    ("policy", "short"),
    [
        ("srtf:quantum_s=5", {"steps_total": 50}),
        ("colocate", {"steps_total": 10_000, "priority": 1, "share": False}),
        ("topo-aware", {"steps_total": 10_000, "priority": 1}),
        ("max-min:quantum_s=5", {"steps_total": 50}),
        ("las:queues_gpu_s=20", {"steps_total": 50}),
        ("finish-time-fair:lease_s=5", {"steps_total": 50}),
    ],
)
def test_a_job_that_may_not_be_stopped_is_parked_for_the_one_before_it_and_comes_back(
    policy: str, short: dict[str, int]
) -> None:
    machine = Machine(policy)
    machine.run(LONG, steps_total=100_000, share=False)
    first = machine.do(Submitted(SHORT, JobSpec(name="s", family="f", **short)), after_s=100.0)  # type: ignore[arg-type]
    done = [*first.decisions, *machine.do(after_s=400.0).decisions]
    parks = [decision.action for decision in done if isinstance(decision.action, Park)]
    assert [(park.job, park.for_job, park.reason.why) for park in parks] == [(LONG, SHORT, Why.PARKED)]
    assert machine.state(LONG) is JobState.PAUSED
    assert machine.state(SHORT) is JobState.QUEUED
    assert machine.cleared() == {SHORT}

    left = machine.sample(LONG, on_host_bytes=0)
    assert [type(decision.action) for decision in left.decisions] == [Start]
    assert machine.cleared() == set()
    assert machine.core.why(LONG, machine.now_s).why is Why.WAITS_PARKED
    machine.launch(SHORT)
    assert not [d for d in machine.do(after_s=0.5).decisions if isinstance(d.action, (Park, Stop, Move))]

    over = machine.do(Ended(SHORT, 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert [(type(decision.action), decision.action.job) for decision in over.decisions] == [(Move, LONG)]
    assert machine.state(LONG) in {JobState.RUNNING, JobState.RUNNING_PROTECTED}
    assert machine.core.state.jobs[LONG].attempt == 1


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ("srtf:quantum_s=5", 850),
        ("srsf:quantum_s=5", 850),
        ("colane:quantum_s=5,move_s=5", 850),
        ("colane:quantum_s=5,move_s=5,objective=makespan", 2000),
        ("colocate", 10),
        ("pack", 10),
    ],
)
def test_a_job_parked_for_an_urgent_one_goes_on_before_those_that_could_not_have_taken_its_place(
    policy: str, steps: int
) -> None:
    """It had 900 steps left; the other has fewer, but not so much fewer that it would have been parked for it."""
    machine, alone = Machine(policy), {"name": "j", "family": "f", "share": False}
    machine.run(LONG, steps_total=1000, share=False)
    machine.do(Submitted(JobId(3), JobSpec(steps_total=steps, **alone)), after_s=100.0)  # type: ignore[arg-type]
    assert machine.state(LONG) is JobState.RUNNING
    machine.do(Submitted(SHORT, JobSpec(steps_total=50, priority=1, **alone)))  # type: ignore[arg-type]
    machine.do(after_s=5.0)
    machine.sample(LONG, on_host_bytes=0, steps=100)
    machine.launch(SHORT)
    over = machine.do(Ended(SHORT, 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert [(type(decision.action), decision.action.job) for decision in over.decisions] == [(Move, LONG)]


EAGER = "colane:quantum_s=5,move_s=5"


@pytest.mark.parametrize(
    "policy",
    [
        "srtf:quantum_s=5",
        "colocate",
        *[f"{EAGER}{aim}" for aim in ("", ",objective=makespan", ",objective=fair")],
    ],
)
@pytest.mark.parametrize("steps", [50, 5000, 500_000])
def test_an_urgent_job_takes_a_place_however_long_it_is(policy: str, steps: int) -> None:
    machine = Machine(policy)
    machine.run(LONG, steps_total=1000, share=False)
    machine.do(after_s=100.0)
    machine.do(Submitted(SHORT, JobSpec(name="j", family="f", share=False, steps_total=steps, priority=1)))
    machine.do(after_s=5.0)
    assert machine.state(LONG) is JobState.PAUSED


@pytest.mark.parametrize("steps", [50, 5000])
def test_it_starts_once_the_other_has_left_however_long_it_is(steps: int) -> None:
    """On a GPU, which who was parked is bound to; it was let back at once, and parked again, for ever."""
    machine = Machine(EAGER, gpu_type="v100", host_memory_bytes=64 << 30)
    machine.run(LONG, steps_total=1000, share=False)
    machine.do(after_s=100.0)
    machine.do(Submitted(SHORT, JobSpec(name="j", family="f", share=False, steps_total=steps, priority=1)))
    machine.do(after_s=5.0)
    left = machine.sample(LONG, on_host_bytes=1 << 20)
    assert [(type(decision.action), decision.action.job) for decision in left.decisions] == [(Start, SHORT)]


@pytest.mark.parametrize("policy", ["srtf:quantum_s=5", "colane:quantum_s=5,move_s=5"])
def test_a_job_that_would_have_taken_its_place_goes_before_a_parked_job(policy: str) -> None:
    machine, alone = Machine(policy), {"name": "j", "family": "f", "share": False}
    machine.run(LONG, steps_total=1000, share=False)
    machine.do(Submitted(SHORT, JobSpec(steps_total=50, priority=1, **alone)), after_s=100.0)  # type: ignore[arg-type]
    machine.do(after_s=5.0)
    machine.sample(LONG, on_host_bytes=0, steps=100)
    machine.launch(SHORT)
    machine.do(Submitted(JobId(3), JobSpec(steps_total=100, **alone)))  # type: ignore[arg-type]
    over = machine.do(Ended(SHORT, 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert [(type(decision.action), decision.action.job) for decision in over.decisions] == [(Start, JobId(3))]


def test_a_parked_job_goes_on_on_another_device_of_its_node_that_falls_free() -> None:
    machine = Machine("srtf:quantum_s=5", devices=2)
    machine.run(LONG, steps_total=100_000)
    machine.run(JobId(3), steps_total=90_000)
    machine.do(Submitted(SHORT, JobSpec(name="s", family="f", steps_total=50)), after_s=100.0)
    machine.sample(LONG, on_host_bytes=0)
    machine.launch(SHORT)
    was = machine.core.state.jobs[LONG].placement
    over = machine.do(Ended(JobId(3), 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    moves = [decision.action for decision in over.decisions]
    assert [(type(move), move.job) for move in moves] == [(Move, LONG)]
    now = machine.core.state.jobs[LONG].placement
    assert was is not None
    assert now is not None
    assert was.gpus != now.gpus


def test_on_a_gpu_it_comes_back_to_its_own_alone() -> None:
    machine = Machine("srtf:quantum_s=5", devices=2, gpu_type="V100")
    machine.run(LONG, steps_total=100_000)
    machine.run(JobId(3), steps_total=90_000)
    machine.do(Submitted(SHORT, JobSpec(name="s", family="f", steps_total=50)), after_s=100.0)
    machine.sample(LONG, on_host_bytes=1 << 20)
    machine.launch(SHORT)
    over = machine.do(Ended(JobId(3), 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert not over.decisions
    assert machine.core.why(LONG, machine.now_s).facts["home"] == "n0/0"


def test_a_job_that_reports_no_steps_is_left_alone() -> None:
    machine = Machine("srtf:quantum_s=5")
    machine.do(Submitted(LONG, JobSpec(name="j", family="f", steps_total=100_000)))
    machine.do(Launched(LONG, 1, 7, machine.now_s))
    machine.do(Submitted(SHORT, JobSpec(name="s", family="f", steps_total=50)), after_s=100.0)
    assert not machine.do(after_s=400.0).decisions
    assert machine.core.why(SHORT, machine.now_s).why is Why.NO_FREE_GPU


def test_by_value_a_parked_job_comes_back_beside_new_lane_mates_once_that_pays() -> None:
    machine, needs = Machine("colane:quantum_s=5,move_s=0"), {"gpu_memory_bytes": 1 << 20}
    machine.run(LONG, steps_total=100_000, **needs)
    short = JobSpec(name="s", family="f", steps_total=50, gpu_memory_bytes=1 << 20)
    machine.do(Submitted(SHORT, short), after_s=100.0)
    machine.sample(LONG, on_host_bytes=0)
    machine.launch(SHORT)
    assert machine.state(LONG) is JobState.PAUSED

    key = ProfileKey("f", None, 1, CPU_DEVICE_TYPE)
    seen = SetMeasurement(
        keys=(key, key), sharing="mps", step_alone_s=(1.0, 1.0), step_together_s=(1.2, 1.2),
        steps=(50, 50), delta=1.6, delta_general=1.6, at_s=machine.now_s,
    )  # fmt: skip
    machine.core.state.knowledge.learn_set(seen)
    came = machine.do(Submitted(JobId(3), replace(short, name="t", share=False)))
    back = [decision.action for decision in came.decisions if isinstance(decision.action, Move)]
    assert [(move.job, move.reason.why) for move in back] == [(LONG, Why.SHARES_BEST)]
    assert machine.core.state.jobs[LONG].gpus_held == machine.core.state.jobs[SHORT].gpus_held
