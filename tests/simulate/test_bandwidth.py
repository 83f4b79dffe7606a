"""Memory bandwidth in virtual time: training slowed by a hog, and the eliminator's own decisions about it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from colane.core.events import Outcome
from colane.cpu.contention import ContentionConfig
from colane.lab.papers.cpu_world import BEST_USE_RATIO, HEAVY, CpuMonthWorld
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobSpec
from colane.model.plan import SetThrottle
from colane.scheduling.registry import preset

TRAIN, HOG = JobId(1), JobId(2)


class Looker:
    def __init__(self) -> None:
        self.steps: list[tuple[float, int | None]] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        for decision in outcome.decisions:
            if isinstance(decision.action, SetThrottle):
                throttle = decision.action.throttle
                self.steps.append((now_s, None if throttle is None else len(throttle.cores)))

    def started(self, process: Process, co_runners: object) -> None: ...


def run(looker: Looker, contention: ContentionConfig | None) -> Run:
    """A language model's training at a step a second, and from 100 s on a hog of ten cores, which halves its speed."""
    gpu = Gpu(index=0, uuid="g", type="v100", memory_bytes=16 << 30)
    cluster = Cluster("one", (Node(name="n", gpus=(gpu,), cores=tuple(range(16))),))
    train = JobSpec(name="train", family="transformer", gpus=1, cores=2)
    hog = JobSpec(name="hog", family="h", gpus=0, cores=10, labels={HEAVY: "heavy"})
    jobs = (
        TraceJob(id=TRAIN, submit_s=0.0, spec=train, duration_s=1000.0),
        TraceJob(id=HOG, submit_s=100.0, spec=hog, duration_s=2500.0),
    )
    world = CpuMonthWorld()
    inputs = Inputs(
        cluster=cluster, workload=Workload(name="w", jobs=jobs, source="test"), world=world, policy=preset("fifo"),
        driver=DriverConfig(bandwidth=world), contention=contention,
    )  # fmt: skip
    return simulate(inputs, watchers=lambda _: [looker])


def ends_s(found: Run) -> dict[int, float]:
    rows = found.ledger.rows
    return dict(zip(rows.id, rows.end_s, strict=True))


def test_without_the_eliminator_training_is_slowed_as_long_as_the_hog_runs() -> None:
    looker = Looker()
    found = ends_s(run(looker, None))
    assert looker.steps == []
    assert found[TRAIN] == pytest.approx(100 + 900 * 2)
    assert found[HOG] == pytest.approx(2600)


def test_with_it_the_hog_is_held_back_within_an_interval_or_two_and_whole_again_at_the_end_of_training() -> None:
    looker = Looker()
    found = ends_s(run(looker, ContentionConfig()))
    (first_s, first), (last_s, last) = looker.steps[0], looker.steps[-1]
    assert 110 <= first_s <= 140
    assert first == 5
    assert last is None
    assert last_s == pytest.approx(found[TRAIN], abs=11)
    assert found[TRAIN] < 1000 + 200
    assert found[HOG] > 2600


def test_it_is_tried_again_less_and_less_often() -> None:
    looker = Looker()
    run(looker, ContentionConfig())
    held = [at_s for at_s, cores in looker.steps if cores == 5]
    gaps = [later - earlier for earlier, later in pairwise(held)]
    assert len(gaps) >= 2
    assert gaps == sorted(gaps)
    assert gaps[-1] > 1.5 * gaps[0]


def test_use_of_the_gpu_falls_with_the_speed() -> None:
    off, on = run(Looker(), None), run(Looker(), ContentionConfig())
    assert min(off.ledger.curve.utilized_gpus[1:-2]) == pytest.approx(BEST_USE_RATIO / 2)
    assert off.ledger.flaws == on.ledger.flaws == []
