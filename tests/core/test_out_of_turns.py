"""A job that is let out of the turns of its lane: booked as a lane of its own, and told of, until it is back."""

from __future__ import annotations

from dataclasses import replace

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Launched, NodeRegistered, Outcome, ProfileDeclared, Progressed, Submitted
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.profile import Value, ValueSource
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset

from .audit import audit
from .worlds import GIB, make_node, make_profile

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)
NOTE = "was asked for its turn and reaches no step boundary for 30 s: it runs beside its lane, without turns"
KEPT_NOTE = "waits at its step boundary: beside job 1, which runs without turns, its memory does not fit"


class Lane:
    """Jobs 1 and 2 take turns on the only GPU, of 16 GiB: each 2 GiB between steps and 5 GiB more within one."""

    def __init__(self) -> None:
        self.core = Core(preset("fair"), ClusterState(Beliefs()), CoreConfig(protection_factor=0.0))
        profile = make_profile("a", "V100", 1e8, 4 * GIB)
        large = Value(5.0 * GIB, ValueSource.MEASURED)
        self.at(0.0, NodeRegistered(make_node("n0", 1)), ProfileDeclared(replace(profile, ephemeral_bytes=large)))
        self.submit(1.0, ONE, TWO)
        self.at(2.0, Launched(ONE, 1, 7, 2.0), Launched(TWO, 1, 8, 2.0))
        self.see(5.0, ONE, "running")
        self.see(5.0, TWO, "waiting")

    def at(self, now_s: float, *events: object) -> Outcome:
        outcome = self.core.step(events, now_s)  # type: ignore[arg-type]
        audit(self.core.state)
        return outcome

    def submit(self, now_s: float, *jobs: JobId) -> None:
        self.at(now_s, *(Submitted(job, JobSpec(name="a", family="a", batch_size=64)) for job in jobs))

    def see(self, now_s: float, job: JobId, turn: str, note: str = "") -> None:
        steps = {"steps": int(now_s * 10), "first_step_s": 3.0, "last_step_s": now_s}
        self.at(now_s, Progressed(job, 1, Progress(at_s=now_s, turn=turn, note=note, **steps)))  # type: ignore[arg-type]

    def job(self, job: JobId) -> Job:
        return self.core.state.jobs[job]

    @property
    def needed_gib(self) -> float:
        needed = self.core.state.gpus[GpuId("n0", 0)].needed_bytes
        assert needed is not None
        return needed / GIB


def test_it_counts_as_a_lane_of_its_own_until_it_is_back() -> None:
    lane = Lane()
    assert {lane.job(job).placement.slots[0].lane for job in (ONE, TWO)} == {0}  # type: ignore[union-attr]
    in_turns = lane.needed_gib
    lane.see(40.0, ONE, "ungated", NOTE)
    assert lane.needed_gib > in_turns + 4.9, "its own E, beside that of the lane"
    assert lane.core.state.gpus[GpuId("n0", 0)].jobs == (ONE, TWO), "in order of their start"
    lane.submit(41.0, THREE)
    assert lane.job(THREE).state is JobState.QUEUED, "no room is counted on that it uses"
    lane.see(50.0, ONE, "waiting")
    assert lane.needed_gib < in_turns + 4.9
    assert lane.job(THREE).state is JobState.ASSIGNED


def test_both_are_told_in_their_stories_once() -> None:
    lane = Lane()
    for now_s in (40.0, 42.0):
        lane.see(now_s, ONE, "ungated", NOTE)
        lane.see(now_s, TWO, "kept", KEPT_NOTE)
    out, kept = lane.core.why(ONE, 43.0), lane.core.why(TWO, 43.0)
    assert (out.why, out.jobs, kept.why, kept.jobs) == (Why.OUT_OF_TURNS, (TWO,), Why.KEPT_WAITING, (ONE,))
    assert sentence_of(out).endswith(NOTE)
    assert sentence_of(kept) == f"kept from its turns in lane 0 of n0/0, shared with job 1: {KEPT_NOTE}"
    for job in (ONE, TWO):
        lane.see(50.0, job, "waiting")
    told = [[line.reason.why for line in lane.job(job).story[-2:]] for job in (ONE, TWO)]
    assert told == [[Why.OUT_OF_TURNS, Why.TAKES_TURNS_AGAIN], [Why.KEPT_WAITING, Why.TAKES_TURNS_AGAIN]]
    assert (lane.job(ONE).attempt, lane.job(TWO).attempt) == (1, 1)


def test_one_that_has_shown_no_step_at_all_is_told_of_too_and_still_reaches_its_first() -> None:
    lane = Lane()
    lane.core.config = replace(lane.core.config, opaque_after_s=100.0)
    lane.submit(6.0, THREE)
    assert lane.job(THREE).state is JobState.ASSIGNED
    lane.at(6.0, Launched(THREE, 1, 9, 6.0))
    lane.at(60.0, Progressed(THREE, 1, Progress(at_s=60.0, turn="ungated", note=NOTE)))
    assert (lane.job(THREE).state, lane.job(THREE).turn) == (JobState.LAUNCHING, "ungated")
    lane.at(200.0)
    assert lane.job(THREE).state is JobState.RUNNING
    lane.at(201.0, Progressed(THREE, 1, Progress(at_s=201.0)))
    assert lane.job(THREE).turn == ""
    lane.see(202.0, THREE, "waiting")
    assert lane.job(THREE).first_step_s is not None


def test_a_restored_scheduler_still_knows_of_it() -> None:
    lane = Lane()
    lane.see(40.0, ONE, "ungated", NOTE)
    assert lane.job(ONE).turn == "ungated"
    restored = ClusterState.restore(
        [(node.node, node.generation) for node in lane.core.state.nodes.values()],
        lane.core.state.jobs.values(),
        lane.core.state.knowledge,
    )
    assert restored.gpus[GpuId("n0", 0)].needed_bytes == lane.core.state.gpus[GpuId("n0", 0)].needed_bytes
