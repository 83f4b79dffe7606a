"""What paper B's experiments are made of: its policies, and scenes of jobs on one GPU whose lanes gain so much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colane.core.policy import Policy
from colane.lab.papers.claims import Experiment
from colane.lab.papers.sharing_memory import Tables
from colane.lab.papers.sharing_world import Gain, GainWorld
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.watcher import Watcher
from colane.lab.traces import clusters
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create, preset

FIFO = create("fifo", as_published=True)
SRTF = preset("salus-srtf", name="srtf", max_wait_s=None)
PACK = preset("pack", take_turns=False, gain_min=None, max_wait_s=None)
PACK_TURNS = preset("pack", name="pack-turns", gain_min=None, max_wait_s=None)
FAIR = preset("fair", max_wait_s=None)
"""The paper's policies: no job is served out of turn for having waited long, and PACK's lanes hold one job each, as in
the released code. `pack-turns` is the printed algorithm 1, which lets jobs into lanes that are there."""

NO_GAIN = Gain(lanes=2, rho=1.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """Jobs, policies and what lanes gain."""

    name: str
    title: str
    jobs: tuple[TraceJob, ...]
    policies: tuple[Policy, ...]
    gain: Gain
    note: str


def experiment_of(scene: Scene, tables: Tables, *watchers: Watcher) -> Experiment:
    """Run every policy of a scene."""
    cluster = clusters.load("paper-b")
    world = GainWorld(tables.memory, scene.gain)
    loaded = Loaded(cluster, Workload(name=scene.name, jobs=scene.jobs, source=scene.title), world)
    runs = tuple((0, _run(loaded, policy, watchers)) for policy in scene.policies)
    return Experiment(scene.name, scene.title, {0: loaded}, runs, scene.note)


def _run(loaded: Loaded, policy: Policy, watchers: Sequence[Watcher]) -> Run:
    """Durations and memory are known, as the paper assumes; safety factors are those the product always uses."""
    jobs, cluster, world = loaded.workload.jobs, loaded.cluster, loaded.world
    known = make_beliefs(Belief.PROFILED, world, jobs, cluster, noise=0.0, seed=0)
    beliefs = Beliefs(profiles=known.profiles.values())
    given = Inputs(cluster=cluster, workload=loaded.workload, world=world, policy=policy, beliefs=beliefs)
    return simulate(given, watchers=lambda _: watchers)


def ends_s(run: Run) -> dict[int, float]:
    """End of each job."""
    return dict(zip(run.ledger.rows.id, run.ledger.rows.end_s, strict=True))


def job_of(number: int, workload: str, iterations: int, step_s: float, submit_s: float = 0.0) -> TraceJob:
    """A job of so many steps; its workload is model_batch."""
    model, _, batch = workload.rpartition("_")
    spec = JobSpec(name=f"{workload} #{number}", family=model, batch_size=int(batch), steps_total=iterations)
    return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=iterations * step_s)
