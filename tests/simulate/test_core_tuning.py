"""The adaptive core allocator on Synergy's curves: what running jobs end with, and what the next of their kind gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from colane.core.events import Outcome
from colane.cpu.config import TuningConfig
from colane.cpu.tuner import STEPS_MAX, TunerName
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_files import SYNERGY, read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import SynergyCores
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.tables import synergy
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobState
from colane.model.job_spec import Category
from colane.model.plan import SetCores, Start
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.scheduling import registry
from tests.simulate.scenes import job, node, random_jobs, workload


class CoreStories:
    """Remembers the cores that each job had, one after another, and its last value."""

    def __init__(self) -> None:
        self.of_job: dict[JobId, list[int]] = {}
        self.jobs: dict[JobId, Job] = {}
        self.most_at_once = 0
        self.flaws = 0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        self.flaws += outcome.rejected is not None
        self.jobs |= {one.id: one for one in outcome.jobs}
        for decision in outcome.decisions:
            if isinstance(decision.action, Start):
                self.of_job[decision.action.job] = [len(decision.action.placement.cores)]
            elif isinstance(decision.action, SetCores):
                self.of_job[decision.action.job].append(len(decision.action.cores))
        placed = [one.placement for one in self.jobs.values() if one.state is JobState.RUNNING]
        self.most_at_once = max(self.most_at_once, sum([len(place.cores) for place in placed if place is not None]))

    def started(self, process: Process, co_runners: object) -> None:
        """Not of interest."""


def machine(cores: int, gpus: int = 1) -> Cluster:
    return Cluster("test", (replace(node("n0", gpus), cores=tuple(range(cores))),))


def training(number: int, family: str, *, gpus: int = 1, submit_s: float = 0.0, cores: int = 3) -> TraceJob:
    return job(number, submit_s, 40_000.0, gpus=gpus, steps=40_000, family=family, cores=cores, category=Category.CV)


def run(world: TableWorld, machines: Cluster, *jobs: TraceJob, **tuning: object) -> tuple[CoreStories, Run]:
    seen = CoreStories()
    config = TuningConfig(**tuning)  # type: ignore[arg-type]
    policy = registry.create("fifo")
    given = Inputs(cluster=machines, workload=workload(*jobs), world=world, policy=policy, tuning=config)
    return seen, simulate(given, watchers=lambda _: [seen])


@pytest.fixture(scope="module")
def world(data: Path) -> TableWorld:
    return TableWorld(read_sources(data))


@pytest.mark.parametrize(
    ("family", "useful"), [("alexnet", 12), ("res18", 9), ("mobilenet", 6), ("res50", 4), ("gnmt", 1)]
)
@pytest.mark.parametrize("name", TunerName)
def test_each_model_ends_with_the_fewest_cores_that_are_as_fast_as_any(
    world: TableWorld, family: str, useful: int, name: TunerName
) -> None:
    seen, _ = run(world, machine(24), training(1, family), tuner=name)
    story = seen.of_job[JobId(1)]
    assert story[0] == 3  # the paper's start for images
    assert useful <= story[-1] <= useful + (name is TunerName.LINEAR)  # four tries may leave one core between
    if name is TunerName.LINEAR:
        assert len(story) - 1 <= STEPS_MAX + 1
    assert seen.flaws == 0


def test_the_next_of_a_kind_starts_with_what_was_found(world: TableWorld) -> None:
    jobs = [training(1, "alexnet"), training(2, "alexnet", submit_s=10.0)]
    seen, found = run(world, machine(24), *jobs)
    assert seen.of_job[JobId(2)] == [3, 13]  # submitted before anything was known, so at once with its first sample
    later, _ = run(world, machine(24), training(1, "alexnet"), training(2, "alexnet", submit_s=30_000.0))
    assert later.of_job[JobId(2)] == [13]
    assert max(found.ledger.rows.end_s) < 40_000  # two jobs of 40,000 s each at three cores


def test_a_job_queued_again_starts_with_what_was_found(world: TableWorld) -> None:
    first = training(1, "alexnet")
    urgent = job(2, 5000.0, 1000.0, steps=1000, family="gnmt", cores=1, priority=1)
    seen = CoreStories()
    given = Inputs(
        cluster=machine(24), workload=workload(first, urgent), world=world, policy=registry.create("colocate"),
        tuning=TuningConfig(),
    )  # fmt: skip
    simulate(given, watchers=lambda _: [seen])
    assert seen.jobs[JobId(1)].attempt == 2
    assert seen.of_job[JobId(1)] == [13]
    assert seen.jobs[JobId(1)].constraints.cores is not None


def test_gpus_multiply_and_a_node_bounds_what_is_tried(world: TableWorld) -> None:
    seen, _ = run(world, machine(10, gpus=2), training(1, "res18", gpus=2, cores=6))
    assert seen.of_job[JobId(1)] == [6, 10, 8, 9, 10]  # the machine's ten are fewer than the 18 it could use
    small, _ = run(world, machine(4, gpus=2), training(1, "res18", gpus=2, cores=4))
    assert small.of_job[JobId(1)] == [4, 2, 3, 4]


def test_jobs_that_ask_for_no_cores_share_their_part_tuned_or_not(world: TableWorld) -> None:
    """The other may have half of the eight cores, found in its own search or known of its kind from the beginning."""
    unasked, asked = training(1, "gnmt", cores=0), training(2, "alexnet", submit_s=1.0)
    seen, _ = run(world, machine(8, gpus=2), unasked, asked)
    assert seen.of_job[JobId(1)] == [0]
    assert seen.jobs[JobId(1)].constraints.cores is None
    assert max(seen.of_job[JobId(2)]) == 4
    brief = replace(training(1, "alexnet"), spec=replace(training(1, "alexnet").spec, steps_total=5000))
    later = replace(training(3, "alexnet", cores=1, submit_s=20_001.0))
    seen, _ = run(world, machine(8, gpus=2), brief, replace(unasked, id=JobId(2), submit_s=20_000.0), later)
    assert seen.of_job[JobId(1)][-1] > 4
    assert max(seen.of_job[JobId(3)]) == 4
    assert seen.flaws == 0


def test_jobs_beside_each_other_leave_each_other_their_cores(world: TableWorld) -> None:
    jobs = [training(number, family) for number, family in enumerate(("alexnet", "res18", "res50", "gnmt"), 1)]
    seen, _ = run(world, machine(16, gpus=4), *jobs)
    ends = {number: story[-1] for number, story in seen.of_job.items()}
    assert seen.flaws == 0
    assert seen.most_at_once <= 16
    assert (ends[JobId(3)], ends[JobId(4)]) == (4, 1)


def test_a_job_that_ends_soon_is_left_alone_and_the_story_says_what_was_tried(world: TableWorld) -> None:
    short = replace(
        training(1, "alexnet"), spec=replace(training(1, "alexnet").spec, steps_total=600), duration_s=600.0
    )
    seen, _ = run(world, machine(24), short)
    assert seen.of_job[JobId(1)] == [3]
    seen, _ = run(world, machine(24), training(1, "alexnet"))
    story = [line.reason for line in seen.jobs[JobId(1)].story if line.reason.why is Why.CORES_CHANGED]
    assert sentence_of(story[0]) == "has 24 cores instead of 3: tried 3 (100 %); tries 24"
    assert "24 (100 %)" in sentence_of(story[-1])
    assert seen.jobs[JobId(1)].constraints.cores is not None


def test_without_tuning_nothing_changes(world: TableWorld) -> None:
    seen = CoreStories()
    given = Inputs(
        cluster=machine(24), workload=workload(training(1, "alexnet")), world=world, policy=registry.create("fifo")
    )
    simulate(given, watchers=lambda _: [seen])
    assert seen.of_job[JobId(1)] == [3]
    assert seen.jobs[JobId(1)].constraints.cores is None


POLICIES = sorted(set(registry.NAMES) - {"coda"})
"""Under CODA a job waits for the cores that others give up for it, as published."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_job_waits_for_cores(policy: str, seed: int) -> None:
    """With few cores all start when they would with many, as recorded durations ask for none."""
    jobs = random_jobs(seed, with_steps=True)
    few = [replace(node(f"n{number}", 4), cores=tuple(range(2))) for number in range(2)]
    many = [replace(one, cores=tuple(range(64))) for one in few]

    def starts(nodes: list[Node]) -> list[float]:
        given = Inputs(
            cluster=Cluster("test", tuple(nodes)), workload=workload(*jobs), world=NeutralWorld(),
            policy=registry.create(policy), tuning=TuningConfig(),
        )  # fmt: skip
        rows = simulate(given).ledger.rows
        return [start_s for _, start_s in sorted(zip(rows.id, rows.first_start_s, strict=True))]

    assert starts(few) == starts(many)


def test_a_job_gets_its_part_back_and_what_another_leaves(world: TableWorld) -> None:
    """It starts with what there is, has its part once it runs, and more as the other ends, before any try is over."""
    first, second = training(1, "alexnet", cores=4), training(2, "res50", submit_s=40.0, cores=4)
    brief = replace(first, spec=replace(first.spec, steps_total=60), duration_s=60.0)
    seen, _ = run(world, machine(4, gpus=2), brief, second)
    assert seen.of_job[JobId(1)] == [2, 3, 2]
    assert seen.of_job[JobId(2)][:3] == [1, 2, 3]
    told = {
        number: [
            sentence_of(line.reason) for line in seen.jobs[JobId(number)].story if line.reason.why is Why.CORES_CHANGED
        ]
        for number in (1, 2)
    }
    assert told[1][1] == "has 2 cores instead of 3: others there have less than their part of the node's"
    assert told[2][1] == "has 3 cores instead of 2: others leave them free"
    assert seen.flaws == 0


def test_a_search_that_ended_for_want_of_cores_goes_on_once_there_are_some(world: TableWorld) -> None:
    other = job(1, 0.0, 3000.0, steps=3000, family="gnmt", cores=3)
    measured = replace(other, spec=replace(other.spec, steps_limit=3000))  # its cores are left alone
    seen, _ = run(world, machine(4, gpus=2), measured, training(2, "alexnet", submit_s=1.0))
    story = seen.of_job[JobId(2)]
    assert story[0] == 1
    assert story[-1] >= 3


def test_cores_given_up_for_a_try_are_kept_for_it(world: TableWorld) -> None:
    """What one is tried without, the other may not take: else it could not have it back for a day."""
    seen, _ = run(world, machine(6, gpus=2), training(1, "alexnet"), training(2, "alexnet"))
    assert [seen.of_job[JobId(number)] for number in (1, 2)] == [[3, 1, 2, 3], [3, 1, 2, 3]]


def test_one_that_is_fastest_with_all_it_could_have_tries_more_as_others_leave_it(world: TableWorld) -> None:
    seen, _ = run(world, machine(6, gpus=2), training(1, "alexnet"), training(2, "gnmt"))
    assert seen.of_job[JobId(2)] == [3, 1]
    assert max(seen.of_job[JobId(1)]) == seen.of_job[JobId(1)][-1] == 5


FAMILIES = ("alexnet", "gnmt", "deepspeech", "res18", "res50", "transformer", "mobilenet", "shufflenet", "lstm")


def static_jobs(seed: int, data: Path) -> list[TraceJob]:
    """As Synergy's static trace: all at once, nine models, half an hour to ten at three cores each."""
    random, steps_s = Random(seed), SynergyCores(synergy.read_matrix(data / SYNERGY))
    found = []
    for number in range(1, 41):
        family, took_s = random.choice(FAMILIES), 1800.0 * 20 ** random.random()
        one = job(number, 0.001 * number, took_s, steps=1, family=family, cores=3, preemptible=number % 2 > 0)
        steps = round(took_s / (steps_s.step_s(one) or 1.0))
        found.append(replace(one, duration_s=None, spec=replace(one.spec, steps_total=steps)))
    return found


@pytest.mark.parametrize("policy", ["fifo", "srtf", "colane", "f-sched"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_takes_longer_since_cores_are_searched_for(data: Path, policy: str, seed: int) -> None:
    """And no job keeps fewer cores than its part of the node where it is faster with more."""
    jobs, world = static_jobs(seed, data), TableWorld(read_sources(data))
    seen = CoreStories()

    def ran(tuning: TuningConfig | None) -> dict[int, float]:
        given = Inputs(
            cluster=machine(24, gpus=8), workload=workload(*jobs), world=world, policy=registry.create(policy),
            tuning=tuning,
        )  # fmt: skip
        rows = simulate(given, watchers=lambda _: [seen] if tuning else []).ledger.rows
        return dict(zip(rows.id, rows.end_s, strict=True))

    off, on = ran(None), ran(TuningConfig())
    assert len(on) == len(off) == len(jobs)
    assert max(on.values()) <= 1.005 * max(off.values())
    assert sum(on.values()) <= 1.005 * sum(off.values())
    for one in jobs:
        right = min(3.0, world.cores_of_use(one) or 3.0)
        assert seen.of_job[one.id][-1] >= right, sentence_of(seen.jobs[one.id].story[-2].reason)
