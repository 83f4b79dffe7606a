"""Who runs where a parked job alone can go on moves to a GPU that has fallen free, if that pays."""

from __future__ import annotations

from colane.core.events import Ended, Outcome, Submitted
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.plan import Resize
from colane.model.reason import Why
from colane.model.sentences import sentence_of

from .test_parking import Machine

EAGER = "colane:quantum_s=5,move_s=5"
PARKED, URGENT, OTHER = JobId(1), JobId(2), JobId(3)


def machine_with_parked(steps: int = 5000, policy: str = EAGER, **urgent: object) -> Machine:
    """Two GPUs: an urgent job has that of one that was parked for it, another the other."""
    machine = Machine(policy, devices=2, gpu_type="v100", host_memory_bytes=64 << 30)
    machine.run(PARKED, steps_total=1000, share=False)
    machine.run(OTHER, steps_total=5000, share=False, priority=1)
    machine.do(after_s=20.0)
    needs: dict[str, object] = {"share": False, "priority": 1, "steps_total": steps, "preemptible": True, **urgent}
    machine.do(Submitted(URGENT, JobSpec(name="u", family="f", **needs)))  # type: ignore[arg-type]
    machine.do(after_s=5.0)
    machine.sample(PARKED, on_host_bytes=1 << 20)
    machine.launch(URGENT)
    machine.do(after_s=10.0)
    assert [machine.state(job) for job in (PARKED, URGENT)] == [JobState.PAUSED, JobState.RUNNING]
    return machine


def end_other(machine: Machine, after_s: float = 1.0) -> Outcome:
    ended = Ended(OTHER, 1, "exited", Exit(0, None), machine.now_s, machine.now_s)
    return machine.do(ended, after_s=after_s)


def made_way(outcome: Outcome) -> list[Resize]:
    return [decision.action for decision in outcome.decisions if isinstance(decision.action, Resize)]


def test_it_moves_to_the_free_gpu_and_the_parked_job_comes_back() -> None:
    machine = machine_with_parked()
    moves = made_way(end_other(machine))
    assert [(move.job, move.for_job, move.reason.why) for move in moves] == [(URGENT, PARKED, Why.VACATED)]
    assert [str(slot.gpu) for slot in moves[0].placement.slots] == ["n0/1"]
    machine.do(Ended(URGENT, 1, "signalled", Exit(None, 15), machine.now_s, machine.now_s))
    assert machine.state(PARKED) in {JobState.RUNNING, JobState.RUNNING_PROTECTED}
    assert str(machine.core.state.jobs[URGENT].gpus_held[0]) == "n0/1"
    assert not made_way(machine.do(after_s=100.0))


def test_it_stays_where_it_is_almost_through() -> None:
    assert not made_way(end_other(machine_with_parked(steps=13)))


def test_it_stays_where_it_does_not_save_its_state() -> None:
    assert not made_way(end_other(machine_with_parked(preemptible=False)))


def test_it_stays_until_it_has_run_for_a_quantum_and_then_moves() -> None:
    machine = machine_with_parked(policy="colane:quantum_s=20,move_s=5")
    asked = end_other(machine)
    assert not made_way(asked)
    assert asked.wake_s is not None
    assert made_way(machine.do(after_s=asked.wake_s - machine.now_s))


def test_no_job_is_preempted_where_that_is_switched_off() -> None:
    for policy in (f"{EAGER},makes_way=no", f"{EAGER},moves=no"):
        assert not made_way(end_other(machine_with_parked(policy=policy)))


def test_it_says_for_which_job() -> None:
    assert sentence_of(made_way(end_other(machine_with_parked()))[0].reason) == (
        "moved from n0/0 to n0/1, so that job 1 can go on: parked, and bound to n0/0"
    )
