"""Laws of all that plans may do, on random worlds in which everything is done at random."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState
from colane.model.job import Job
from colane.model.plan import ACTION_NAMES
from colane.model.sentences import sentence_of
from tests.examples import examples

from .audit import audit, audit_decisions
from .shuffler import Shuffler
from .worlds import World

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


@examples(30)
@given(seed=SEEDS)
def test_every_state_is_true_whatever_plans_do(seed: int) -> None:
    world = World(Shuffler(seed), seed, sized=seed % 2 == 0, cpu_only=seed % 3 == 0)
    for _ in range(80):
        outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
        assert outcome.rejected is None
        audit(world.core.state)
        audit_decisions(world.core.state, outcome)
        for job in list(world.core.state.jobs):
            assert sentence_of(world.core.why(job, world.now_s))


@examples(25)
@given(seed=SEEDS)
def test_every_job_ends_exactly_once_after_the_faults_stop(seed: int) -> None:
    world = World(Shuffler(seed), seed, sized=seed % 2 == 0, cpu_only=seed % 3 == 0)
    for _ in range(60):
        world.step(world.random_event())
    world.settle()
    ends = [job.id for outcome in world.outcomes for job in outcome.jobs if job.has_ended]
    assert sorted(ends) == sorted(world.submitted)
    assert all(load.is_free for load in world.core.state.gpus.values())
    assert all(not node.cores_booked and not node.host_memory_booked_bytes for node in world.core.state.nodes.values())


@examples(25)
@given(seed=SEEDS)
def test_a_restored_state_equals_the_one_it_was_written_from(seed: int) -> None:
    world = World(Shuffler(seed), seed, sized=seed % 2 == 0, cpu_only=seed % 3 == 0)
    for _ in range(80):
        world.step(world.random_event())
    state = world.core.state
    nodes = [(node.node, node.generation) for node in sorted(state.nodes.values(), key=lambda n: n.order)]
    restored = ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version)
    audit(restored)
    assert restored.jobs == state.jobs
    assert {name: queue.classes.keys() for name, queue in restored.queues.items() if queue.count} == {
        name: queue.classes.keys() for name, queue in state.queues.items() if queue.count
    }


def _grew(job: Job) -> bool:
    """Whether its last attempt had fewer GPUs than this one."""
    return job.placement is not None and any(0 < one.gpus < job.gpu_count for one in job.totals.served)


def test_random_worlds_reach_every_action_and_its_consequences() -> None:
    done: Counter[str] = Counter()
    for seed in range(60):
        world = World(Shuffler(seed), seed, sized=seed % 2 == 0, cpu_only=seed % 3 == 0)
        for _ in range(120):
            outcome = world.step(world.random_event())
            done.update(ACTION_NAMES[type(decision.action)] for decision in outcome.decisions)
            for job in outcome.jobs:
                done["parked, waits"] += bool(job.home)
                done["parked, suspended"] += bool(job.home) and job.suspended
                done["parked, refused"] += job.run.host_refusal != "" and not job.suspended
                done["restarted larger"] += _grew(job)
                done["restarted resized"] += job.reason is not None and job.reason.why == "resized"
    missing = {*ACTION_NAMES.values(), "parked, waits", "parked, suspended", "parked, refused", "restarted resized"}
    missing.add("restarted larger")
    assert missing <= done.keys() - {name for name, count in done.items() if not count}
