"""Cores of running jobs: a change is felt at once, and what each number gives is learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest

from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.lab.simulate.run import Run
from colane.lab.simulate.table_files import read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobState
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.perf.rate import RateSource, Situation
from colane.scheduling.mechanisms.topology.free import first_fit
from tests.simulate.scenes import GIB, cluster, job, run


@dataclass(frozen=True)
class Rebooking:
    """Starts who fits; gives the running job each of these numbers of cores at its time, while another one waits."""

    changes: tuple[tuple[float, int], ...]
    name: str = "rebooking"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        for pool in view.pools:
            for job_id in list(view.queue(pool)):
                waiting = view.job(job_id)
                gpus = first_fit(draft, waiting.spec)
                if gpus is not None:
                    draft.start(waiting, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
            due = [many for at_s, many in self.changes if at_s <= view.now_s]
            running = [one for one in view.jobs.values() if one.state is JobState.RUNNING]
            for one in running if due else ():
                if one.placement is not None and len(one.placement.cores) != due[-1]:
                    draft.set_cores(one, tuple(range(due[-1])), Reason(Why.FREE_CORES, {"node": "n0"}))
            draft.plan_again(pool, min([at_s for at_s, _ in self.changes if at_s > view.now_s], default=inf))
        return draft.plan()


def alexnet(number: int, **needs: object) -> TraceJob:
    wants: dict[str, object] = {"family": "alexnet", "steps": 2000, "cores": 1, **needs}
    return job(number, 0.0, 1000.0, **wants)  # type: ignore[arg-type]


@pytest.fixture
def world(data: Path) -> TableWorld:
    return TableWorld(read_sources(data))


def rebooked(world: TableWorld, *changes: tuple[float, int], **needs: object) -> Run:
    return run([alexnet(1, **needs), alexnet(2, **needs)], cluster(1), Rebooking(changes), world)


def first_end_s(found: Run) -> float:
    return float(min(found.ledger.rows.end_s))


def test_a_change_of_cores_is_felt_at_once(world: TableWorld) -> None:
    """Synergy's AlexNet: 0.3 at 1 core, 1.53 at 5. Half of the work at one core, the rest 5.1 times as fast."""
    assert first_end_s(rebooked(world)) == pytest.approx(1000)
    assert first_end_s(rebooked(world, (500.0, 5))) == pytest.approx(500 + 500 * 0.3 / 1.53)
    assert first_end_s(rebooked(world, (250.0, 5), (300.0, 1))) == pytest.approx(300 + 750 - 50 * 1.53 / 0.3)


def test_the_curve_over_cores_is_learnt_and_answers_what_was_not_tried(world: TableWorld) -> None:
    found = rebooked(world, (200.0, 3), (400.0, 6))
    profile = next(one for one in found.profiles if one.key == ProfileKey("alexnet", None, 1, "v100"))
    beliefs = Beliefs(profiles=[profile])
    assert [pace.cores for pace in profile.core_paces] == [1, 3, 6]
    speeds = [1 / pace.step_s.value for pace in profile.core_paces]
    assert [speed / speeds[0] for speed in speeds] == pytest.approx([1, 1 / 0.3, 1.75 / 0.3])
    assert profile.step_s == profile.core_paces[-1].step_s
    spec = alexnet(1).spec
    rates = {cores: beliefs.rate(spec, Situation("v100", cores=cores)) for cores in (1, 2, 6, 8)}
    assert rates[1].slowdown == pytest.approx(1.75 / 0.3)
    assert rates[1].factors.cores.source is RateSource.MEASURED
    assert rates[2].ratio == pytest.approx((0.3 + 1.0) / 2 / 1.75)
    assert rates[2].factors.cores.source is RateSource.INTERPOLATED
    assert rates[6].slowdown == rates[8].slowdown == 1
    assert rates[1].step_s == pytest.approx(profile.core_paces[0].step_s.value)


def test_a_gpu_is_used_less_by_a_job_with_too_few_cores(world: TableWorld) -> None:
    use = {cores: world.occupancy_ratio(alexnet(1, cores=3), "v100", cores) for cores in (1, 3)}
    assert use[1] == pytest.approx(0.3 * (use[3] or 0.0))


def test_too_little_host_memory_slows_by_synergys_matrix(world: TableWorld) -> None:
    """Column 0, far too little memory: 0.1 of the fair share at any number of cores."""
    ample, starved = rebooked(world, (500.0, 3)), rebooked(world, (500.0, 3), host_memory_bytes=20 * GIB)
    assert first_end_s(ample) == pytest.approx(500 + 500 * 0.3)
    assert first_end_s(starved) == pytest.approx(1000)
