"""Neighbours on a socket are learnt from what runs, and count in the next placement."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.surroundings import socket_neighbours_of
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, Progressed, Submitted, SuspendRequested
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.model.topologies import PRESETS
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .worlds import GIB

A, B = (ProfileKey(family, 1, 1, "P100") for family in "ab")


class Bench:
    """A Minsky on which jobs run that make steps when told to."""

    def __init__(self) -> None:
        self.core = Core(create("topo-aware"), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
        gpus = tuple(Gpu(index=i, uuid=f"g{i}", type="P100", memory_bytes=16 * GIB, socket=i // 2) for i in range(4))
        self.core.step([NodeRegistered(Node(name="n0", gpus=gpus, topology=PRESETS["minsky"]()))], 0.0)
        self.now_s = 0.0
        self.steps: dict[int, int] = {}

    def start(self, job: int, family: str, gpus: int = 1, **needs: object) -> str:
        spec = JobSpec(name="j", family=family, batch_size=1, gpus=gpus, **needs)  # type: ignore[arg-type]
        self.core.step([Submitted(JobId(job), spec)], self.now_s)
        self.core.step([Launched(JobId(job), 1, 1, self.now_s)], self.now_s)
        self.steps[job] = 0
        self.go(1.0, **{str(job): 1})
        placement = self.core.state.jobs[JobId(job)].placement
        assert placement is not None
        return " ".join(map(str, placement.gpus))

    def go(self, span_s: float, **steps: int) -> None:
        """For so long, in which jobs make so many steps, the last one just now."""
        self.now_s += span_s
        for name, count in steps.items():
            job = int(name)
            self.steps[job] += count
            sample = Progress(at_s=self.now_s, steps=self.steps[job], first_step_s=1.0, last_step_s=self.now_s)
            self.core.step([Progressed(JobId(job), 1, sample)], self.now_s)

    def end(self, job: int) -> None:
        self.core.step([Ended(JobId(job), 1, "exited", Exit(0, None), 0.0, self.now_s)], self.now_s)

    def slowdown(self, key: ProfileKey, other: ProfileKey) -> float:
        return self.core.state.beliefs.neighbours.slowdown(key, other)


def test_jobs_that_disturb_each_other_are_kept_apart_from_then_on() -> None:
    bench = Bench()
    assert bench.start(1, "a") == "n0/0"
    bench.go(20.0, **{"1": 20})
    assert bench.start(2, "b") == "n0/1", "nothing is known against it"
    bench.go(0.0, **{"1": 0, "2": 0})
    bench.go(30.0, **{"1": 20, "2": 30})
    bench.end(2)
    bench.go(0.0, **{"1": 0})
    assert (bench.slowdown(A, B), bench.slowdown(B, A)) == (1.5, 1.0)
    assert bench.core.state.beliefs.profiles[A].places[0].step_s.value == pytest.approx(1.0)
    assert bench.start(3, "b") == "n0/2"


def test_what_was_learnt_leaves_with_the_step_that_taught_it() -> None:
    bench = Bench()
    bench.start(1, "a")
    sample = Progress(at_s=21.0, steps=21, first_step_s=1.0, last_step_s=21.0)
    outcome = bench.core.step([Progressed(JobId(1), 1, sample)], 21.0)
    assert [(profile.key, len(profile.places)) for profile in outcome.profiles] == [(A, 1)]


def test_a_job_of_several_gpus_is_near_all_on_its_sockets() -> None:
    bench = Bench()
    bench.start(1, "a")
    bench.start(2, "b", gpus=3)
    bench.go(0.0, **{"1": 0, "2": 0})
    neighbours = socket_neighbours_of(bench.core.state, JobId(2))
    assert neighbours is not None
    assert [near.job for near in neighbours.others] == [1]
    assert neighbours.distance == 1.0 + 2 * 20.0


def test_nothing_is_learnt_beside_a_job_that_stands_still() -> None:
    bench = Bench()
    bench.start(1, "a")
    bench.start(2, "b")
    assert socket_neighbours_of(bench.core.state, JobId(1)) is not None
    bench.core.step([SuspendRequested(JobId(2), "me")], bench.now_s)
    assert bench.core.state.jobs[JobId(2)].suspended
    assert socket_neighbours_of(bench.core.state, JobId(1)) is None
    assert socket_neighbours_of(bench.core.state, JobId(2)) is None
