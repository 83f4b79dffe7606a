"""Memory that outgrows the ledger, and jobs that run out of it: who is stopped, who is tried again, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import (
    Ended,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    ProfilesForgotten,
    Progressed,
    Submitted,
)
from colane.core.policy import Policy
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.registry import preset

from .audit import audit
from .worlds import GIB, make_node

MIB = 1 << 20


def profile(family: str, persistent_bytes: int, ephemeral_bytes: int) -> Profile:
    persistent, ephemeral = (Value(float(part), ValueSource.MEASURED) for part in (persistent_bytes, ephemeral_bytes))
    return Profile(key=ProfileKey(family, None, 1, "V100"), persistent_bytes=persistent, ephemeral_bytes=ephemeral)


class Cluster:
    """One GPU of 16 GiB, a core, and reports of jobs that run on it."""

    def __init__(self, policy: Policy | None = None, **needs: tuple[int, int]) -> None:
        self.core = Core(policy or preset("pack"), ClusterState(Beliefs()))
        self.now_s = 0.0
        self.step(NodeRegistered(make_node("n0", 1)))
        self.step(*(ProfileDeclared(profile(name, p * GIB, e * GIB)) for name, (p, e) in needs.items()))

    def step(self, *events: object) -> Outcome:
        self.now_s += 1.0
        outcome = self.core.step(events, self.now_s)  # type: ignore[arg-type]
        assert outcome.rejected is None
        return outcome

    def run(self, *families: str, **more: object) -> None:
        """Submit one job after another and launch those that start."""
        for family in families:
            number = JobId(1 + max(self.core.state.jobs, default=0))
            spec = JobSpec(name=family, family=family, **more)  # type: ignore[arg-type]
            self.step(Submitted(number, spec))
            if self.job(number).state is JobState.ASSIGNED:
                self.step(Launched(number, 1, 100 + number, self.now_s))

    def job(self, number: int) -> Job:
        return self.core.state.jobs[JobId(number)]

    def grows(self, number: int, persistent_bytes: int, peak_bytes: int) -> Outcome:
        sample = Progress(
            at_s=self.now_s, steps=3, first_step_s=self.now_s, last_step_s=self.now_s,
            persistent_bytes=persistent_bytes, peak_bytes=peak_bytes,
        )  # fmt: skip
        return self.step(Progressed(JobId(number), self.job(number).attempt, sample))

    def ends(self, number: int, outcome: str, code: int = 1) -> Outcome:
        return self.step(
            Ended(JobId(number), self.job(number).attempt, outcome, Exit(code, None, "CUDA"), 0.0, self.now_s)
        )


def test_the_youngest_is_stopped_when_what_was_seen_does_not_fit_any_more() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3), c=(1, 2))
    cluster.run("a", "b", "c")
    assert [cluster.job(k).state for k in (1, 2, 3)] == [JobState.LAUNCHING] * 3
    cluster.grows(1, 1 * GIB, 10 * GIB)
    assert [cluster.job(k).state for k in (1, 2, 3)] == [
        JobState.RUNNING_PROTECTED, JobState.LAUNCHING, JobState.STOPPING,
    ]  # fmt: skip
    reason = cluster.job(3).reason
    assert reason is not None
    assert reason.why is Why.OUTGROWN
    assert reason.jobs == (1, 2)
    assert reason.facts["need_bytes"] == (10 + 4 + 3) * GIB


def test_growth_that_the_safety_factors_cover_moves_no_job() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3), c=(1, 2))
    cluster.run("a", "b", "c")
    cluster.grows(1, 1 * GIB, 6 * GIB)
    assert JobState.STOPPING not in {cluster.job(k).state for k in (1, 2, 3)}


def test_a_stopped_job_starts_again_where_its_need_fits() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3), c=(1, 2))
    cluster.run("a", "b", "c")
    cluster.grows(1, 1 * GIB, 14 * GIB)
    assert [cluster.job(k).state for k in (2, 3)] == [JobState.STOPPING] * 2
    cluster.ends(2, "signalled")
    cluster.ends(3, "signalled")
    load = next(iter(cluster.core.state.gpus.values()))
    assert set(load.jobs) >= {1}
    needed = load.needed_bytes
    assert needed is not None
    assert needed <= load.capacity_bytes, "what starts again is booked as it was seen"
    cluster.ends(1, "exited", 0)
    assert {job.state for job in cluster.core.state.jobs.values()} <= {JobState.ASSIGNED, JobState.LAUNCHING}


def test_a_job_alone_may_try_whatever_it_needs() -> None:
    cluster = Cluster(a=(1, 4))
    cluster.run("a")
    cluster.grows(1, 2 * GIB, 40 * GIB)
    assert cluster.job(1).state is JobState.RUNNING_PROTECTED


def test_members_of_one_lane_are_judged_by_the_largest_of_them() -> None:
    cluster = Cluster(preset("fair"), a=(1, 10), b=(1, 10))
    cluster.run("a", "b")
    cluster.grows(1, 1 * GIB, 13 * GIB)
    assert [cluster.job(k).state for k in (1, 2)] == [JobState.RUNNING_PROTECTED, JobState.LAUNCHING]
    cluster.grows(2, 4 * GIB, 15 * GIB)
    assert cluster.job(2).state is JobState.STOPPING


def test_one_that_got_nothing_of_its_gpu_beside_others_is_not_to_blame() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3))
    cluster.run("a", "b")
    cluster.ends(2, "gpu-refused")
    again = cluster.job(2)
    assert (again.state, again.story[-1].reason.why, again.totals.failures) == (
        JobState.QUEUED,
        Why.REFUSED_BESIDE,
        0,
    )
    cluster.ends(1, "exited", 0)
    cluster.run("a")
    assert cluster.job(3).state is JobState.QUEUED, "no job joins it"


def test_one_that_got_nothing_of_its_gpu_alone_has_failed() -> None:
    cluster = Cluster(a=(1, 4))
    cluster.run("a")
    (ended,) = [job for job in cluster.ends(1, "gpu-refused").jobs if job.id == 1]
    assert ended.state is JobState.FAILED


@pytest.mark.parametrize(("sharing", "running"), [("mps", 2), ("exclusive", 1)])
def test_jobs_share_no_gpu_that_its_driver_gives_to_one_process(sharing: str, running: int) -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3))
    node = next(iter(cluster.core.state.nodes.values())).node
    gpus = tuple(replace(gpu, sharing=sharing) for gpu in node.gpus)
    cluster.step(NodeRegistered(replace(node, gpus=gpus)))
    cluster.run("a", "b")
    states = [cluster.job(number).state for number in (1, 2)]
    assert sum(state is not JobState.QUEUED for state in states) == running


def test_out_of_memory_with_co_runners_is_tried_once_more_alone() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3))
    cluster.run("a", "b")
    cluster.ends(2, "out-of-memory")
    again = cluster.job(2)
    assert again.state is JobState.QUEUED
    assert [line.reason.why for line in again.story][-1] is Why.RETRY_ALONE
    assert sentence_of(again.story[-1].reason) == (
        "ran out of memory beside job 1; it is tried once more with a GPU to itself"
    )
    assert again.totals.failures == 0
    cluster.ends(1, "exited", 0)
    assert cluster.job(2).state is JobState.ASSIGNED
    cluster.run("a")
    assert cluster.job(3).state is JobState.QUEUED, "no job joins it"
    outcome = cluster.ends(2, "out-of-memory")
    assert [job.state for job in outcome.jobs if job.id == 2] == [JobState.OUT_OF_MEMORY]


def test_out_of_memory_alone_is_an_end_of_its_own() -> None:
    cluster = Cluster(a=(1, 4))
    cluster.run("a", retries=3)
    outcome = cluster.ends(1, "out-of-memory")
    assert [job.state for job in outcome.jobs] == [JobState.OUT_OF_MEMORY]


def test_a_job_that_can_take_turns_is_not_stopped() -> None:
    """Side by side 10 + 7 + 2 GiB do not fit 16; two in one lane need the larger E of them only."""
    cluster = Cluster(a=(1, 4), b=(1, 3))
    cluster.run("a", "b")
    cluster.grows(2, 1 * GIB, 4 * GIB)
    outcome = cluster.grows(1, 1 * GIB, 14 * GIB)
    (load,) = cluster.core.state.gpus.values()
    assert [(booking.job, booking.lane) for booking in load.bookings] == [(1, 0), (2, 0)]
    assert [cluster.job(k).state for k in (1, 2)] == [JobState.RUNNING_PROTECTED] * 2
    placement = cluster.job(2).placement
    assert placement is not None
    assert [slot.lane for slot in placement.slots] == [0]
    assert "n0" in outcome.nodes
    assert sentence_of(cluster.job(2).story[-1].reason) == (
        "takes turns with job 1 in lane 0 of n0/0 from now on: "
        "side by side the jobs there were seen to need 19.3 GB of its 17.2 GB"
    )
    audit(cluster.core.state)
    nodes = [(node.node, node.generation) for node in cluster.core.state.nodes.values()]
    again = ClusterState.restore(nodes, cluster.core.state.jobs.values(), cluster.core.state.knowledge)
    assert set(next(iter(again.gpus.values())).bookings) == set(load.bookings)


def test_a_server_is_no_co_runner_for_that() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3))
    cluster.run("a")
    cluster.run("b", kind=JobKind.INFERENCE)
    cluster.grows(2, 1 * GIB, 4 * GIB)
    cluster.grows(1, 1 * GIB, 14 * GIB)
    assert cluster.job(1).state is JobState.STOPPING
    assert cluster.job(2).state is not JobState.STOPPING  # answers do not end for what training has grown by


FORGED = 17 << 40
"""More than any device has: a job writes its page itself."""


@pytest.mark.parametrize("declared", [None, 2 * GIB])
@pytest.mark.parametrize("spoilt", [(FORGED, FORGED), (1 * GIB, FORGED), (FORGED, 1 * GIB), (15 * GIB, 16 * GIB)])
def test_no_sample_keeps_a_family_off_every_gpu(spoilt: tuple[int, int], declared: int | None) -> None:
    """Neither what is impossible nor safety factors on what is possible: such a job runs with a GPU to itself."""
    cluster = Cluster()
    cluster.run("a")
    cluster.grows(1, *spoilt)
    cluster.ends(1, "exited", 0)
    cluster.run("a", gpu_memory_bytes=declared)
    assert cluster.job(1).state is JobState.LAUNCHING
    load = next(iter(cluster.core.state.gpus.values()))
    assert load.needed_bytes == (16 * GIB if declared is None else declared)


@pytest.mark.parametrize("is_declared", [False, True])
def test_what_is_declared_wins_over_what_others_have_taught(is_declared: bool) -> None:
    cluster = Cluster(a=(12, 3), b=(1, 1))
    cluster.run("a", "b", gpu_memory_bytes=4 * GIB if is_declared else None)
    assert [cluster.job(k).state for k in (1, 2)] == [
        JobState.LAUNCHING, JobState.LAUNCHING if is_declared else JobState.QUEUED,
    ]  # fmt: skip
    cluster.grows(1, 1 * GIB, 2 * GIB)
    if is_declared:
        assert cluster.job(2).state is JobState.LAUNCHING, "who keeps within it is not held to what others needed"


def test_a_job_that_needs_more_than_declared_is_booked_by_that_and_gives_way_first() -> None:
    """Though it is the oldest: those that came later rely on what it declared."""
    cluster = Cluster(a=(1, 1), b=(1, 9))
    cluster.run("a", gpu_memory_bytes=2 * GIB)
    cluster.run("b")
    cluster.grows(1, 1 * GIB, 4 * GIB)
    exceeding, load = cluster.job(1), next(iter(cluster.core.state.gpus.values()))
    assert exceeding.effective.gpu_memory_bytes == int(4 * GIB * 1.05)
    assert exceeding.spec.gpu_memory_bytes == 2 * GIB
    assert sum(load.bookings[0].memory or ()) == int(4 * GIB * 1.05)
    assert JobState.STOPPING not in {cluster.job(k).state for k in (1, 2)}, "both fit"
    cluster.grows(1, 1 * GIB, 8 * GIB)
    assert [cluster.job(k).state for k in (1, 2)] == [JobState.STOPPING, JobState.LAUNCHING]
    cluster.ends(1, "signalled")
    assert cluster.job(1).state is JobState.QUEUED, "it is booked as it was seen, and waits for room for that"
    audit(cluster.core.state)


def test_a_gpu_with_more_memory_raises_what_its_family_may_be_booked_and_its_loss_lowers_it() -> None:
    cluster = Cluster()
    cluster.run("a")
    cluster.grows(1, 15 * GIB, 16 * GIB)
    large = make_node("n1", 1)
    large = replace(large, gpus=(replace(large.gpus[0], memory_bytes=80 * GIB),))
    load = next(iter(cluster.core.state.gpus))
    assert cluster.core.state.gpus[load].needed_bytes == 16 * GIB
    cluster.step(NodeRegistered(large))
    assert cluster.core.state.gpus[load].needed_bytes == int((15 * 1.1 + 1) * 1.05 * GIB)
    cluster.step(NodeLost("n1"))
    assert cluster.core.state.gpus[load].needed_bytes == 16 * GIB
    audit(cluster.core.state)


def needs(cluster: Cluster) -> int | None:
    memory = cluster.core.state.beliefs.memory(JobSpec(name="a", family="a"), "V100")
    return None if memory is None else sum(memory)


def lives(cluster: Cluster, peak_bytes: int, attempts: int = 1) -> None:
    """So many jobs of one family, one after another."""
    for _ in range(attempts):
        cluster.run("a")
        number = max(cluster.core.state.jobs)
        cluster.grows(number, 1 * GIB, peak_bytes)
        cluster.ends(number, "exited", 0)


def test_the_largest_ever_gives_way_to_what_is_needed_lately() -> None:
    """All that is seen in a window counts until another has passed without it."""
    cluster = Cluster()
    window = PerfConfig().memory_attempts
    lives(cluster, 12 * GIB)
    most = needs(cluster)
    lives(cluster, 2 * GIB, window - 1)
    assert needs(cluster) == most, "the first window has it"
    lives(cluster, 2 * GIB, window - 1)
    assert needs(cluster) == most
    lives(cluster, 2 * GIB)
    assert needs(cluster) == int((1 * 1.1 + 1) * 1.05 * GIB)
    lives(cluster, 5 * GIB)
    assert needs(cluster) == int((1 * 1.1 + 4) * 1.05 * GIB), "more is believed at once"
    audit(cluster.core.state)


def test_a_kind_of_which_every_window_has_a_large_one_is_booked_by_it() -> None:
    cluster = Cluster()
    lives(cluster, 12 * GIB)
    most = needs(cluster)
    for _ in range(5):
        lives(cluster, 2 * GIB, PerfConfig().memory_attempts - 1)
        lives(cluster, 12 * GIB)
        assert needs(cluster) == most


def test_a_large_one_that_runs_still_counts_in_every_window() -> None:
    cluster = Cluster()
    cluster.step(NodeRegistered(make_node("n1", 1)))
    cluster.run("a")
    cluster.grows(1, 1 * GIB, 12 * GIB)
    most = needs(cluster)
    for _ in range(3 * PerfConfig().memory_attempts):
        lives(cluster, 2 * GIB)
        assert needs(cluster) == most


def test_attempts_that_show_nothing_do_not_count() -> None:
    cluster = Cluster()
    lives(cluster, 12 * GIB)
    most = needs(cluster)
    for _ in range(3 * PerfConfig().memory_attempts):
        cluster.run("a")
        cluster.ends(max(cluster.core.state.jobs), "exited", 0)
    assert needs(cluster) == most


def test_a_forgotten_family_is_booked_as_one_that_never_ran_and_learnt_anew() -> None:
    cluster = Cluster(a=(1, 4), b=(1, 3))
    cluster.run("a", "b")
    load = next(iter(cluster.core.state.gpus))
    outcome = cluster.step(ProfilesForgotten("a"))
    assert outcome.forgotten == ("a",)
    assert [profile.step_s for profile in outcome.profiles] == [None], "those that share a GPU rely on its memory"
    assert None not in [booking.memory for booking in cluster.core.state.gpus[load].bookings]
    audit(cluster.core.state)
    cluster.ends(2, "exited", 0)
    outcome = cluster.step(ProfilesForgotten("a"))
    assert (outcome.forgotten, outcome.profiles) == (("a",), ())
    assert [booking.memory for booking in cluster.core.state.gpus[load].bookings] == [None]
    audit(cluster.core.state)
    outcome = cluster.grows(1, 1 * GIB, 2 * GIB)
    assert [profile.key.family for profile in outcome.profiles] == ["a"]
    seen = Progress(at_s=9.0, steps=9, persistent_bytes=GIB, peak_bytes=3 * GIB)
    both = cluster.step(Progressed(JobId(1), 1, seen), ProfilesForgotten("a"), Progressed(JobId(1), 1, seen))
    assert both.forgotten == ("a",)
    assert [profile.key.family for profile in both.profiles] == ["a"], "what is seen after that is new"
