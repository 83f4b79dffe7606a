"""Jobs under `colane` that are bound to a GPU together, and turn out to be slower so than one after another."""

from __future__ import annotations

from dataclasses import replace

from colane.core.events import Ended, Launched, NodeRegistered, Submitted
from colane.model.hardware import CPU_DEVICE_TYPE
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.plan import Move, Park, Start, Stop
from colane.model.profile import ProfileKey, SetMeasurement
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from tests.core.worlds import make_node

from .test_parking import Machine

EAGER = "colane:quantum_s=5,move_s=0"
LONG, SHORT = JobId(1), JobId(2)
KEY = ProfileKey("f", None, 1, CPU_DEVICE_TYPE)


def slowed(slowdown: float) -> SetMeasurement:
    return SetMeasurement(
        keys=(KEY, KEY), sharing="mps", step_alone_s=(1.0, 1.0), step_together_s=(slowdown, slowdown), steps=(50, 50),
        delta=2 / slowdown, delta_general=2 / slowdown, at_s=0.0,
    )  # fmt: skip


def together(policy: str = EAGER, launch_takes_s: float = 1.0, **needs: object) -> Machine:
    """Two jobs that share a device, as that was believed to pay."""
    machine = Machine(policy)
    machine.core.state.knowledge.learn_set(slowed(1.2))
    for job, steps in ((LONG, 1000), (SHORT, 500)):
        spec = JobSpec(name="j", family="f", steps_total=steps, gpu_memory_bytes=1 << 20, **needs)  # type: ignore[arg-type]
        machine.do(Submitted(job, spec))
        machine.do(Launched(job, 1, 100 + job, machine.now_s))
        machine.do(after_s=launch_takes_s)
        machine.sample(job)
        machine.do()
    assert [machine.state(job) for job in (LONG, SHORT)] == [JobState.RUNNING] * 2
    return machine


def leaving(machine: Machine, slowdown: float) -> list[Park | Stop]:
    """Who leaves once it is seen how slow they are; a job asks meanwhile that wants no co-runners."""
    for _ in range(50):
        machine.core.state.knowledge.learn_set(slowed(slowdown))
    alone = JobSpec(name="j", family="f", steps_total=5000, share=False)
    asked = machine.do(Submitted(JobId(3), alone), after_s=10.0)
    return [decision.action for decision in asked.decisions if isinstance(decision.action, (Park, Stop))]


def test_of_jobs_that_are_slower_together_than_in_turn_the_longest_waits() -> None:
    machine = together()
    parks = leaving(machine, 3.0)
    assert [(type(park), park.job, park.for_job, park.reason.why) for park in parks] == [(Park, LONG, None, Why.SPLIT)]
    assert parks[0].reason.jobs == (SHORT,)


def test_it_does_not_come_back_beside_those_it_left_but_once_they_are_through() -> None:
    machine = together()
    leaving(machine, 3.0)
    machine.sample(LONG, on_host_bytes=0)
    assert machine.state(LONG) is JobState.PAUSED
    assert not machine.do(after_s=10.0).decisions
    over = machine.do(Ended(SHORT, 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert [(type(decision.action), decision.action.job) for decision in over.decisions] == [(Move, LONG)]


def test_a_job_that_is_hardly_slower_together_stays() -> None:
    assert not leaving(together(), 2.1)


def test_a_job_that_may_be_stopped_and_starts_quickly_is_stopped_and_not_let_back_beside_those_it_left() -> None:
    machine = together(preemptible=True)
    stops = leaving(machine, 3.0)
    assert [(type(stop), stop.job, stop.for_job, stop.reason.why) for stop in stops] == [
        (Stop, LONG, None, Why.SPLIT_BY_STOPPING)
    ]
    machine.do(Ended(LONG, 1, "stopped", Exit(0, None), machine.now_s, machine.now_s))
    assert machine.state(LONG) is JobState.QUEUED
    assert not machine.do(after_s=10.0).decisions
    over = machine.do(Ended(SHORT, 1, "exited", Exit(0, None), machine.now_s, machine.now_s))
    assert [(type(decision.action), decision.action.job) for decision in over.decisions] == [(Start, LONG)]


def test_a_job_that_may_be_stopped_but_takes_long_to_start_is_parked() -> None:
    machine = together(preemptible=True, launch_takes_s=200.0)
    assert [(type(park), park.job) for park in leaving(machine, 3.0)] == [(Park, LONG)]


def test_a_job_that_may_be_stopped_moves_where_there_is_a_better_place() -> None:
    machine = together(preemptible=True)
    for _ in range(50):
        machine.core.state.knowledge.learn_set(slowed(3.0))
    done = machine.do(NodeRegistered(make_node("n1", 1, CPU_DEVICE_TYPE)), after_s=10.0)
    assert [decision.action.reason.why for decision in done.decisions] == [Why.MOVED]


def test_it_can_be_switched_off() -> None:
    assert not leaving(together(f"{EAGER},parts=no"), 3.0)


def test_it_says_by_what_numbers() -> None:
    reason = leaving(together(), 3.0)[0].reason
    assert sentence_of(replace(reason, facts={**reason.facts, "sum": 0.0})) == (
        "parked at a step boundary, for it and job 2 are slower together on n0/0 than one after another would be "
        "(sum of speeds 0.00, without it 1.00); it goes on there when that pays"
    )
